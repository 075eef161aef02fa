"""GGUF files of the kinds beyond Llama's nearest relatives, written as llama.cpp's converter writes them.

Tensors are taken in the layout of safetensors, named by the gguf package's own maps; metadata by its writer's methods.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gguf
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.oracles import cases_experts, cases_general, cases_latent, cases_linear, cases_positions
from tests.oracles.cases_positions import BLOOM_SIZES, GATED, LONG, MPT_SIZES, SHORT
from tests.oracles.hf_models import GEMMA_SIZES, GPT2_SIZES, NEOX_SIZES, SIZES, Case

Named = tuple[str, Tensor]
Write = Callable[[Any, Any], None]
HALF = {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}}
STRETCHED = {"rope_type": "longrope", "rope_theta": 100.0, "short_factor": SHORT, "long_factor": LONG, "attention_factor": 1.3}
YARN = {**cases_latent.YARN, "mscale": 0.7}
_AREAS = (cases_experts, cases_general, cases_latent, cases_linear, cases_positions)
OTHERS: dict[str, Case] = {name: case for area in _AREAS for name, case in area.CASES.items()}
LISTED = ["sliding_attention", "full_attention", "sliding_attention"]

CASES: dict[str, tuple[str, Case]] = {
    "mixtral": ("llama", OTHERS["mixtral"]),
    "mixtral older file": ("llama", OTHERS["mixtral"]),
    "qwen2moe": ("qwen2moe", OTHERS["qwen2 moe"]),
    "qwen3moe": ("qwen3moe", Case("Qwen3MoeConfig", {**cases_experts.QWEN3_MOE, "norm_topk_prob": True})),
    "gpt-oss": ("gpt-oss", Case("GptOssConfig", cases_experts.GPT_OSS)),
    "gemma": ("gemma", Case("GemmaConfig", SIZES)),
    "gemma2": ("gemma2", Case("Gemma2Config", {**GEMMA_SIZES, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 3.0})),
    "phi2": ("phi2", OTHERS["phi"]),
    "phi3": ("phi3", Case("Phi3Config", {**GATED, "sliding_window": 5, **HALF})),
    "phi3 long": ("phi3", Case("Phi3Config", {**GATED, "rope_parameters": STRETCHED, "original_max_position_embeddings": 16})),
    "glm4": ("glm4", OTHERS["glm4"]),
    "chatglm": ("chatglm", OTHERS["glm"]),
    "olmo2": ("olmo2", OTHERS["olmo2"]),
    "olmo3": ("olmo2", Case("Olmo3Config", {**cases_general.WIDE, "sliding_window": 5, "layer_types": LISTED})),
    "smollm3": ("smollm3", Case("SmolLM3Config", {**cases_general.WIDE, "num_hidden_layers": 5})),
    "granite": ("granite", OTHERS["granite"]),
    "ministral3": ("mistral3", OTHERS["ministral3"]),
    "command-r": ("command-r", Case("CohereConfig", cases_general.COHERE_SIZES)),
    "command-r plus": ("command-r", Case("CohereConfig", {**cases_general.COHERE_SIZES, "use_qk_norm": True})),
    "cohere2": ("cohere2", Case("Cohere2Config", {**cases_general.COHERE_SIZES, "num_hidden_layers": 5, "sliding_window": 5})),
    "stablelm": ("stablelm", OTHERS["stablelm"]),
    "stablelm parallel": ("stablelm", OTHERS["stablelm parallel, biases"]),
    "gpt2": ("gpt2", Case("GPT2Config", GPT2_SIZES)),
    "starcoder": ("starcoder", OTHERS["bigcode"]),
    "gptneox": ("gptneox", Case("GPTNeoXConfig", NEOX_SIZES)),
    "gptneox sequential": ("gptneox", Case("GPTNeoXConfig", {**NEOX_SIZES, "use_parallel_residual": False})),
    "falcon": ("falcon", OTHERS["falcon"]),
    "falcon 40b": ("falcon", OTHERS["falcon grouped"]),
    "bloom": ("bloom", Case("BloomConfig", BLOOM_SIZES)),
    "mpt": ("mpt", Case("MptConfig", MPT_SIZES)),
    "deepseek2": ("deepseek2", OTHERS["deepseek2"]),
    "deepseek2 older file": ("deepseek2", OTHERS["deepseek2, queries without latent, grouped routing"]),
    "deepseek3": ("deepseek2", OTHERS["deepseek3"]),
    "deepseek3 yarn": ("deepseek2", Case("DeepseekV3Config", {**cases_latent.GROUPED, "rope_parameters": YARN})),
    "mamba2": ("mamba2", OTHERS["mamba2"]),
}
OLD = ("mixtral older file", "deepseek2 older file")
READ_BY_TRANSFORMERS = ("gemma2", "phi3 long", "gpt2", "stablelm parallel", "falcon", "bloom", "qwen2moe", "qwen3moe")
"""Kinds whose tensors transformers reads too, so that it vouches for the files that are written here."""
PAIRED = ("llama", "smollm3", "granite", "mistral3")


def write_kind(path: Path, architecture: str, model: Any, old: bool = False) -> None:
    """Write a model as llama.cpp's converter does.

    old: as it did at first: DeepSeek's keys and values in one tensor, and widths of heads alone; a tensor for each expert.
    """
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    _standard(writer, config)
    EXTRA.get(architecture, lambda writer, config: None)(writer, config)
    if architecture == "deepseek2":
        _deepseek_widths(writer, config, old)
    layers = getattr(config, "num_hidden_layers", None) or config.num_layers
    names = gguf.get_tensor_name_map({name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}[architecture], layers)
    for name, tensor in _converted(architecture, _saved(model), config, old):
        name, _, expert = name.partition("@")
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise LookupError(f"{architecture} has no tensor for {name}")
        found = found.replace("_exps.", f".{expert}.") if expert else found
        writer.add_tensor(found, tensor.contiguous().float().numpy())
    if architecture == "phi3" and config.rope_parameters["rope_type"] == "longrope":
        for each in ("long", "short"):
            writer.add_tensor(f"rope_factors_{each}.weight", torch.tensor(config.rope_parameters[f"{each}_factor"]).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _saved(model: Any) -> dict[str, Tensor]:
    """The model's tensors as its checkpoint holds them."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(Path(folder) / "model.safetensors")


def _of(config: Any, *names: str) -> Any:
    return next((value for name in names if (value := getattr(config, name, None)) is not None), None)


def _standard(writer: Any, config: Any) -> None:
    """What the converter writes for every kind, where the config has it."""
    rope = _of(config, "rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    fields: list[tuple[Write, Any]] = [
        (writer.add_block_count, _of(config, "num_hidden_layers", "n_layer", "n_layers", "num_layers")),
        (writer.add_context_length, _of(config, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length") or 2048),
        (writer.add_embedding_length, _of(config, "hidden_size", "n_embd", "d_model")),
        (writer.add_feed_forward_length, _feed_forward(config)),
        (writer.add_head_count, _of(config, "num_attention_heads", "n_head", "n_heads", "num_heads")),
        (writer.add_head_count_kv, _of(config, "num_key_value_heads")),
        (writer.add_rope_freq_base, rope.get("rope_theta")),
        (writer.add_layer_norm_rms_eps, _of(config, "rms_norm_eps")),
        (writer.add_layer_norm_eps, _of(config, "layer_norm_eps", "layer_norm_epsilon")),
        (writer.add_key_length, _of(config, "head_dim")),
        (writer.add_value_length, _of(config, "head_dim")),
        (writer.add_expert_count, _of(config, "num_local_experts", "num_experts")),
        (writer.add_expert_used_count, _of(config, "num_experts_per_tok")),
        (writer.add_vocab_size, config.vocab_size),
    ]
    if config.model_type.startswith(("deepseek", "mamba2")):
        fields = [pair for pair in fields if pair[0] not in (writer.add_key_length, writer.add_value_length)]
    for add, value in fields:
        if value is not None:
            add(value)


def _feed_forward(config: Any) -> int:
    stated = _of(config, "intermediate_size", "n_inner", "ffn_hidden_size", "d_ff")
    return stated or 4 * _of(config, "hidden_size", "n_embd", "d_model")


def _rotated(writer: Any, config: Any) -> None:
    width = _of(config, "head_dim") or config.hidden_size // config.num_attention_heads
    writer.add_rope_dimension_count(int(width * config.rope_parameters.get("partial_rotary_factor", 1.0)))


def _yarn(writer: Any, config: Any) -> None:
    rope = config.rope_parameters
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope.get("beta_fast", 32.0))


def _sliding_list(writer: Any, config: Any) -> None:
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern([each == "sliding_attention" for each in config.layer_types])


def _phi3(writer: Any, config: Any) -> None:
    _rotated(writer, config)
    writer.add_sliding_window(config.sliding_window or 0)
    writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
    if "attention_factor" in config.rope_parameters:
        writer.add_rope_scaling_attn_factors(config.rope_parameters["attention_factor"])


def _gemma2(writer: Any, config: Any) -> None:
    writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_sliding_window(config.sliding_window)


def _granite(writer: Any, config: Any) -> None:
    _rotated(writer, config)
    writer.add_attention_scale(config.attention_multiplier)
    writer.add_embedding_scale(config.embedding_multiplier)
    writer.add_residual_scale(config.residual_multiplier)
    writer.add_logit_scale(config.logits_scaling)


def _mistral3(writer: Any, config: Any) -> None:
    _rotated(writer, config)
    _yarn(writer, config)
    writer.add_attn_temperature_scale(config.rope_parameters["llama_4_scaling_beta"])


def _qwen2moe(writer: Any, config: Any) -> None:
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)


def _gpt_oss(writer: Any, config: Any) -> None:
    writer.add_sliding_window(config.sliding_window)
    writer.add_expert_feed_forward_length(config.intermediate_size)
    _yarn(writer, config)


def _falcon(writer: Any, config: Any) -> None:
    writer.add_head_count_kv(config.num_kv_heads if config.new_decoder_architecture else 1)


def _neox(writer: Any, config: Any) -> None:
    _rotated(writer, config)
    writer.add_parallel_residual(config.use_parallel_residual)


def _deepseek(writer: Any, config: Any) -> None:
    if config.q_lora_rank is not None:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    writer.add_expert_count(config.n_routed_experts)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    is_v3 = config.model_type == "deepseek_v3"
    _yarn(writer, config)
    if config.rope_parameters["rope_type"] == "yarn":
        writer.add_rope_scaling_yarn_log_mul(0.1 * config.rope_parameters["mscale_all_dim"])
    writer.add_expert_weights_norm(is_v3 and config.norm_topk_prob)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID if is_v3 else gguf.ExpertGatingFuncType.SOFTMAX)
    if config.n_group is not None:
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)


def _deepseek_widths(writer: Any, config: Any, old: bool) -> None:
    width = config.qk_nope_head_dim + config.qk_rope_head_dim
    writer.add_key_length(width if old else config.kv_lora_rank + config.qk_rope_head_dim)
    writer.add_value_length(config.v_head_dim if old else config.kv_lora_rank)
    if not old:
        writer.add_key_length_mla(width)
        writer.add_value_length_mla(config.v_head_dim)


def _mamba2(writer: Any, config: Any) -> None:
    writer.add_head_count(0)
    writer.add_feed_forward_length(0)
    writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)
    writer.add_ssm_conv_kernel(config.conv_kernel)
    writer.add_ssm_inner_size(config.num_heads * config.head_dim)
    writer.add_ssm_state_size(config.state_size)
    writer.add_ssm_time_step_rank(config.num_heads)
    writer.add_ssm_group_count(config.n_groups)


def _bert(writer: Any, config: Any) -> None:
    writer.add_causal_attention(False)
    if config.model_type == "roberta":
        writer.add_context_length(config.max_position_embeddings - config.pad_token_id - 1)


def _t5(writer: Any, config: Any) -> None:
    writer.add_key_length(config.d_kv)
    writer.add_value_length(config.d_kv)
    writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)
    writer.add_relative_attn_buckets_count(config.relative_attention_num_buckets)
    writer.add_decoder_block_count(config.num_decoder_layers)
    writer.add_decoder_start_token_id(config.decoder_start_token_id)


EXTRA: dict[str, Write] = {
    "phi2": _rotated,
    "phi3": _phi3,
    "glm4": _rotated,
    "chatglm": _rotated,
    "stablelm": lambda writer, config: (_rotated(writer, config), writer.add_parallel_residual(config.use_parallel_residual)),
    "gptneox": _neox,
    "gemma2": _gemma2,
    "granite": _granite,
    "mistral3": _mistral3,
    "olmo2": lambda writer, config: _sliding_list(writer, config) if config.model_type == "olmo3" else None,
    "smollm3": _rotated,
    "command-r": lambda writer, config: writer.add_logit_scale(config.logit_scale),
    "cohere2": lambda writer, config: (
        writer.add_logit_scale(config.logit_scale),
        writer.add_sliding_window(config.sliding_window),
        _rotated(writer, config),
    ),
    "qwen2moe": _qwen2moe,
    "qwen3moe": lambda writer, config: writer.add_expert_feed_forward_length(config.moe_intermediate_size),
    "gpt-oss": _gpt_oss,
    "falcon": _falcon,
    "starcoder": lambda writer, config: writer.add_head_count_kv(1),
    "mpt": lambda writer, config: writer.add_max_alibi_bias(config.attn_config.alibi_bias_max),
    "deepseek2": _deepseek,
    "mamba2": _mamba2,
    "bert": _bert,
    "t5": _t5,
}

EXPERT = re.compile(r"\.experts\.(\d+)\.")


def _converted(architecture: str, saved: dict[str, Tensor], config: Any, old: bool) -> Iterable[Named]:
    """The checkpoint's tensors as the converter changes them, experts stacked."""
    experts: dict[str, dict[int, Tensor]] = {}
    for name, tensor in saved.items():
        name = name.removeprefix("transformer.") if architecture == "bloom" else name
        if found := EXPERT.search(name):
            experts.setdefault(EXPERT.sub(".experts.", name), {})[int(found.group(1))] = tensor
        else:
            yield from _changed(architecture, name, tensor, config, old)
    for name, each in experts.items():
        stacked = torch.stack([each[index] for index in range(len(each))])
        yield from (
            ((f"{name}@{index}", part) for index, part in enumerate(stacked))
            if old and architecture == "llama"
            else [(name, stacked)]
        )


def _changed(architecture: str, name: str, tensor: Tensor, config: Any, old: bool) -> list[Named]:
    if architecture in PAIRED and re.search(r"\.[qk]_proj\.", name):
        heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        return [(name, tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).reshape(tensor.shape))]
    if architecture.startswith("gemma") and "norm" in name:
        return [(name, tensor + 1)]
    if architecture == "gpt2" and tensor.dim() == 2 and name.split(".")[-2] in ("c_attn", "c_proj", "c_fc"):
        return [(name, tensor.t())]
    if architecture in ("gptneox", "bloom", "falcon") and "query_key_value" in name:
        return [(name, _sorted_rows(tensor, architecture, config))]
    if architecture == "gpt-oss":
        return _gpt_oss_tensors(name, tensor)
    if architecture == "deepseek2":
        return _deepseek_tensors(name, tensor, config, old)
    if architecture == "mamba2":
        return [_mamba2_tensor(name, tensor, config)]
    if "shared_expert_gate" in name:
        return [(name, tensor.squeeze())]
    if config.model_type == "roberta" and "position_embeddings" in name:
        return [(name, tensor[config.pad_token_id + 1 :])]
    if "pooler" in name or name.endswith("embed_tokens.weight") and architecture == "t5":
        return []
    return [(re.sub(r"^bert\.", "", name), tensor)]


def _sorted_rows(tensor: Tensor, architecture: str, config: Any) -> Tensor:
    """Fused rows, group by group, to all queries, then all keys, then all values."""
    heads = config.num_attention_heads
    groups = heads
    if architecture == "falcon":
        groups = config.num_kv_heads if config.new_decoder_architecture else 1
    rows = tensor.unflatten(0, (groups, heads // groups + 2, -1))
    return torch.cat([rows[:, :-2].flatten(0, 2), rows[:, -2].flatten(0, 1), rows[:, -1].flatten(0, 1)])


def _gpt_oss_tensors(name: str, tensor: Tensor) -> list[Named]:
    if name.endswith("sinks"):
        return [(f"{name}.weight", tensor)]
    part = ".bias" if name.endswith("_bias") else ".weight"
    if "experts" not in name:
        return [(name, tensor)]
    stacked = tensor if part == ".bias" else tensor.transpose(1, 2)
    base = name.removesuffix("_bias")
    if base.endswith("gate_up_proj"):
        base = base.removesuffix("gate_up_proj")
        return [(f"{base}gate_proj{part}", stacked[:, ::2]), (f"{base}up_proj{part}", stacked[:, 1::2])]
    return [(f"{base}{part}", stacked)]


def _mamba2_tensor(name: str, tensor: Tensor, config: Any) -> Named:
    if name.endswith("A_log"):
        return name, -tensor.exp()[:, None]
    if name.endswith("mixer.D"):
        return name, tensor[:, None]
    if name.endswith("mixer.norm.weight"):
        return name, tensor.unflatten(0, (config.n_groups, -1))
    return name.replace("dt_bias", "dt_proj.bias"), tensor.squeeze(1) if name.endswith("conv1d.weight") else tensor


def _deepseek_tensors(name: str, tensor: Tensor, config: Any, old: bool) -> list[Named]:
    if name.endswith("e_score_correction_bias"):
        return [(name.replace("_bias", ".bias"), tensor)]
    if "kv_b_proj" not in name or old:
        return [(name, tensor)]
    heads = tensor.unflatten(0, (config.num_attention_heads, -1))
    k, v = heads.split([config.qk_nope_head_dim, config.v_head_dim], 1)
    return [(name.replace("kv_b_proj", "k_b_proj"), k.transpose(1, 2)), (name.replace("kv_b_proj", "v_b_proj"), v)]
