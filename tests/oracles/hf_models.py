"""Tiny random Hugging Face models, one per family and option, saved as a user meets them: config.json and safetensors.

Weights are large enough for attention to be sharp, norm gains and biases are random too, and sequences are longer than windows,
so that no option can be ignored without changing the logits.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

SIZES = {
    "vocab_size": 61,
    "hidden_size": 36,
    "intermediate_size": 44,
    "num_hidden_layers": 3,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
NEOX_SIZES = {
    **{k: v for k, v in SIZES.items() if k not in ("num_key_value_heads", "head_dim")},
    "hidden_size": 48,
    "num_attention_heads": 3,
}
GPT2_SIZES = {"vocab_size": 61, "n_embd": 24, "n_layer": 3, "n_head": 3, "n_positions": 64}
QWEN2_SIZES = {k: v for k, v in SIZES.items() if k != "head_dim"} | {"hidden_size": 72}
GEMMA_SIZES = {**SIZES, "query_pre_attn_scalar": 12, "sliding_window": 5}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 2.0}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
}


@dataclass(frozen=True)
class Case:
    """A config class, its arguments, and edits to the written config.json (a value of ... removes the field)."""

    config_class: str
    options: dict[str, Any] = field(default_factory=dict)
    rewrite: dict[str, Any] = field(default_factory=dict)
    attention: str = "eager"
    """Hugging Face's implementation to compare with; the plain one applies every option in most families."""


def _llama(**options: Any) -> Case:
    return Case("LlamaConfig", {**SIZES, **options})


def _rope(kind: str, **options: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 100.0, **options}}


CASES: dict[str, Case] = {
    "gpt2": Case("GPT2Config", GPT2_SIZES),
    "gpt2 unscaled, wide, untied": Case(
        "GPT2Config", {**GPT2_SIZES, "scale_attn_weights": False, "n_inner": 20, "tie_word_embeddings": False}
    ),
    "gpt2 relu": Case("GPT2Config", {**GPT2_SIZES, "activation_function": "relu", "layer_norm_epsilon": 1e-2}),
    "neox": Case("GPTNeoXConfig", NEOX_SIZES),
    "neox older config": Case(
        "GPTNeoXConfig", NEOX_SIZES, {"rope_parameters": ..., "rotary_pct": 0.25, "rotary_emb_base": 10_000}
    ),
    "neox sequential, tied": Case("GPTNeoXConfig", {**NEOX_SIZES, "use_parallel_residual": False, "tie_word_embeddings": True}),
    "neox full rotary, no bias": Case(
        "GPTNeoXConfig",
        {
            **NEOX_SIZES,
            "attention_bias": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 1.0},
        },
    ),
    "neox without rotary": Case(
        "GPTNeoXConfig",
        {**NEOX_SIZES, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.0}},
    ),
    "neox linear": Case(
        "GPTNeoXConfig",
        {
            **NEOX_SIZES,
            "rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 10_000.0, "partial_rotary_factor": 0.5},
        },
    ),
    "llama": _llama(),
    "llama multi-head": _llama(num_key_value_heads=9),
    "llama multi-query": _llama(num_key_value_heads=1),
    "llama tied, biases": _llama(tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    "llama linear": _llama(**_rope("linear", factor=4.0)),
    "llama dynamic": Case("LlamaConfig", {**SIZES, "max_position_embeddings": 16, **_rope("dynamic", factor=4.0)}),
    "llama llama3": _llama(**_rope("llama3", **LLAMA3)),
    "llama yarn": _llama(**_rope("yarn", **YARN)),
    "llama yarn, untruncated": _llama(**_rope("yarn", **YARN, truncate=False)),
    "llama yarn, factor stated": _llama(**_rope("yarn", **YARN, attention_factor=1.3)),
    "llama yarn, mscale": _llama(**_rope("yarn", **YARN, mscale=1.4, mscale_all_dim=0.6)),
    "llama older config": Case(
        "LlamaConfig",
        {**SIZES, **_rope("llama3", **LLAMA3)},
        {"rope_parameters": ..., "rope_theta": 100.0, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
    ),
    "llama oldest config": Case(
        "LlamaConfig",
        {**SIZES, "num_key_value_heads": 9, "hidden_size": 72, **_rope("linear", factor=2.0)},
        {
            "rope_parameters": ...,
            "num_key_value_heads": ...,
            "head_dim": ...,
            "rope_theta": 100.0,
            "rope_scaling": {"type": "linear", "factor": 2.0},
        },
    ),
    "smollm2": _llama(tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 100_000.0}),
    "llama, rotated part stated": _llama(partial_rotary_factor=0.5),
    "mistral, rotated part stated": Case("MistralConfig", {**SIZES, **_rope("default", partial_rotary_factor=0.5)}),
    "mistral alternating": Case(
        "MinistralConfig",
        {**SIZES, "sliding_window": 5, "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
        {"model_type": "mistral"},
    ),
    "mistral windowed": Case("MistralConfig", {**SIZES, "sliding_window": 5}),
    "mistral full": Case("MistralConfig", {**SIZES, "sliding_window": None}),
    "qwen2": Case("Qwen2Config", QWEN2_SIZES),
    "qwen2 last layers windowed": Case(
        "Qwen2Config", {**QWEN2_SIZES, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
    ),
    "qwen2 older config": Case(
        "Qwen2Config",
        {**QWEN2_SIZES, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2},
        {"layer_types": ..., "rope_parameters": ..., "rope_theta": 10_000.0},
    ),
    "qwen2 yarn": Case("Qwen2Config", {**QWEN2_SIZES, **_rope("yarn", factor=2.0, original_max_position_embeddings=64)}),
    "qwen3": Case("Qwen3Config", SIZES),
    "qwen3, rotated part stated": Case("Qwen3Config", {**SIZES, **_rope("default", partial_rotary_factor=0.5)}),
    "qwen3 biases, windows": Case(
        "Qwen3Config",
        {
            **SIZES,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 4,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "gemma": Case("GemmaConfig", SIZES),
    "gemma older config": Case("GemmaConfig", SIZES, {"hidden_act": "gelu", "rope_parameters": ..., "rope_theta": 10_000.0}),
    "gemma biases, untied": Case("GemmaConfig", {**SIZES, "attention_bias": True, "tie_word_embeddings": False}),
    "gemma2": Case("Gemma2Config", {**GEMMA_SIZES, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0}),
    "gemma2 uncapped": Case("Gemma2Config", {**GEMMA_SIZES, "attn_logit_softcapping": None, "final_logit_softcapping": None}),
    "gemma2 older config": Case(
        "Gemma2Config", {**GEMMA_SIZES, "attn_logit_softcapping": 3.0}, {"layer_types": ..., "rope_parameters": ...}
    ),
    "gemma3": Case(
        "Gemma3TextConfig", {**GEMMA_SIZES, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
    ),
    "gemma3 scaled": Case(
        "Gemma3TextConfig",
        {
            **GEMMA_SIZES,
            "layer_types": ["sliding_attention", "full_attention", "full_attention"],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
            },
        },
    ),
    "gemma3 older config": Case(
        "Gemma3TextConfig",
        {
            **GEMMA_SIZES,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
            },
        },
        {
            "layer_types": ...,
            "rope_parameters": ...,
            "_sliding_window_pattern": ...,
            "sliding_window_pattern": 2,
            "rope_theta": 5000.0,
            "rope_local_base_freq": 300.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
    ),
    "gemma3 capped, biases": Case("Gemma3TextConfig", {**GEMMA_SIZES, "attention_bias": True, "final_logit_softcapping": 4.0}),
    "gemma3 multimodal": Case(
        "Gemma3Config", {"text_config": {**GEMMA_SIZES, "vocab_size": 61}, "vision_config": VISION, "image_token_index": 60}
    ),
}


def hf_model(case: Case, seed: int = 0) -> Any:
    """The Hugging Face model, in float32 and evaluation mode."""
    import transformers

    config = getattr(transformers, case.config_class)(**case.options)
    for part in {id(part): part for part in (config, config.get_text_config())}.values():
        part.bos_token_id = part.eos_token_id = part.pad_token_id = None
    if case.config_class == "Gemma3Config":
        model = transformers.Gemma3ForConditionalGeneration._from_config(config, attn_implementation="eager")
    else:
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=case.attention)
    randomise(model, torch.Generator().manual_seed(seed))
    return model.eval()


def randomise(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Weights of variance 2 / fan-in, embeddings of variance 1, and norm gains and biases far from their usual start."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1:
                parameter.copy_(noise if "emb" in name or "wte" in name else noise * (2 / parameter.shape[-1]) ** 0.5)
            else:
                parameter.copy_(parameter + 0.3 * noise)
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.copy_(1 + 0.3 * torch.randn(buffer.shape, generator=generator))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(0.3 * torch.randn(buffer.shape, generator=generator))


def save_case(case: Case, model: Any, folder: Path, **options: Any) -> None:
    """Write the model as a checkpoint folder, its config.json edited as the case says."""
    model.save_pretrained(folder, **options)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for key, value in case.rewrite.items():
        if value is ...:
            config.pop(key)
        else:
            config[key] = value
    path.write_text(json.dumps(config))
