"""Models of TransformerLens's classic HookedTransformer: its config dict and its state dict.

There weights are `x @ W` with heads on an axis of their own; `W_in`, `W_gate` and `W_out` are our up, gate and down. Its gated
MLP adds b_in after the product, act(x W_gate) * (x W_in) + b_in, so b_in W_out joins b_out here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from ..config import RotaryConfig, TransformerConfig
from ..errors import CheckpointError, ConfigError, closest
from .families.family import check_layers
from .families.fields import FLAG, NUMBER, SIZE, TEXT, WHOLE, FieldKind, kinds
from .families.rules import activation_named
from .fill import MappingSource, Weight, build_model

if TYPE_CHECKING:
    from ..transformer import HookedTransformer

Config = Mapping[str, Any]

NORMS = {"LN": "layer_norm", "LNPre": "layer_norm", "RMS": "rms_norm", "RMSPre": "rms_norm", None: "none"}
POSITIONS = {"standard": "learned", "rotary": "rotary"}

DEFAULTS: dict[str, Any] = {
    "eps": 1e-5,
    "normalization_type": "LN",
    "positional_embedding_type": "standard",
    "attention_dir": "causal",
    "use_attn_scale": True,
    "attn_scale": -1.0,
    "d_vocab_out": -1,
    "rotary_base": 10_000,
    "NTK_by_parts_factor": 8.0,
    "NTK_by_parts_low_freq_factor": 1.0,
    "NTK_by_parts_high_freq_factor": 4.0,
    "NTK_original_ctx_len": 8192,
}

READ = (
    *DEFAULTS,
    "n_layers",
    "d_model",
    "n_heads",
    "d_head",
    "n_ctx",
    "d_vocab",
    "d_mlp",
    "n_key_value_heads",
    "act_fn",
    "attn_only",
)
READ = (*READ, "gated_mlp", "final_rms", "parallel_attn_mlp", "rotary_dim", "rotary_adjacent_pairs", "use_NTK_by_parts_rope")
READ = (*READ, "use_local_attn", "window_size", "attn_types", "use_qk_norm", "use_normalization_before_and_after")
READ = (*READ, "attn_scores_soft_cap", "output_logits_soft_cap", "model_name")

WITHOUT_EFFECT = (
    "checkpoint_index checkpoint_label_type checkpoint_value default_prepend_bos device dtype from_checkpoint init_mode "
    "init_weights initializer_range n_devices n_params original_architecture seed tie_word_embeddings tokenizer_name "
    "tokenizer_prepends_bos trust_remote_code ungroup_grouped_query_attention use_attn_in use_attn_result use_hook_mlp_in "
    "use_hook_tokens use_split_qkv_input decoder_start_token_id uses_rms_norm layer_norm_folding"
).split()
"""Fields that do not change what a model with given weights computes."""

OFF: dict[str, tuple[Any, ...]] = {
    "load_in_4bit": (False, None),
    "post_embedding_ln": (False, None),
    "scale_attn_by_inverse_layer_idx": (False, None),
    "num_experts": (None,),
    "experts_per_token": (None,),
    "relative_attention_max_distance": (None,),
    "relative_attention_num_buckets": (None,),
}
"""Fields that we do not support -> the values at which they are off."""

FIELD_KINDS = kinds(
    {
        SIZE: "n_layers d_model d_head n_ctx d_vocab NTK_original_ctx_len",
        SIZE.or_null(): "d_mlp n_key_value_heads rotary_dim window_size",
        WHOLE: "d_vocab_out",
        WHOLE.or_null(): "n_heads",
        NUMBER: "eps rotary_base NTK_by_parts_factor NTK_by_parts_low_freq_factor NTK_by_parts_high_freq_factor",
        FieldKind("a number other than 0", lambda value: NUMBER.fits(value) and value != 0): "attn_scale",
        NUMBER.or_null(): "attn_scores_soft_cap output_logits_soft_cap",
        FLAG: "use_attn_scale",
        FLAG.or_null(): "attn_only gated_mlp final_rms parallel_attn_mlp rotary_adjacent_pairs use_NTK_by_parts_rope "
        "use_local_attn use_qk_norm use_normalization_before_and_after",
        FieldKind("a list of names", lambda value: isinstance(value, list | tuple)).or_null(): "attn_types",
        TEXT.or_null(): "model_name",
    }
)
"""By field, what it must be."""

BUFFERS = re.compile(r"\.attn\.(mask|IGNORE|rotary_sin|rotary_cos)$")

WEIGHTS = {
    "embed.weight": Weight("embed.W_E"),
    "pos_embed.weight": Weight("pos_embed.W_pos"),
    "blocks.{l}.attn.q.weight": Weight("blocks.{l}.attn.W_Q", "join_heads"),
    "blocks.{l}.attn.q.bias": Weight("blocks.{l}.attn.b_Q", "join_heads"),
    "blocks.{l}.attn.k.weight": Weight("blocks.{l}.attn.W_K", "join_heads"),
    "blocks.{l}.attn.k.bias": Weight("blocks.{l}.attn.b_K", "join_heads"),
    "blocks.{l}.attn.v.weight": Weight("blocks.{l}.attn.W_V", "join_heads"),
    "blocks.{l}.attn.v.bias": Weight("blocks.{l}.attn.b_V", "join_heads"),
    "blocks.{l}.attn.o.weight": Weight("blocks.{l}.attn.W_O", "join_heads_out"),
    "blocks.{l}.attn.o.bias": Weight("blocks.{l}.attn.b_O"),
    "blocks.{l}.attn.q_norm.weight": Weight("blocks.{l}.attn.q_norm.w"),
    "blocks.{l}.attn.k_norm.weight": Weight("blocks.{l}.attn.k_norm.w"),
    "blocks.{l}.mlp.up.weight": Weight("blocks.{l}.mlp.W_in", "transpose"),
    "blocks.{l}.mlp.up.bias": Weight("blocks.{l}.mlp.b_in"),
    "blocks.{l}.mlp.gate.weight": Weight("blocks.{l}.mlp.W_gate", "transpose"),
    "blocks.{l}.mlp.gate.bias": Weight("blocks.{l}.mlp.b_gate"),
    "blocks.{l}.mlp.down.weight": Weight("blocks.{l}.mlp.W_out", "transpose"),
    "blocks.{l}.mlp.down.bias": Weight("blocks.{l}.mlp.b_out"),
    "ln_final.weight": Weight("ln_final.w"),
    "ln_final.bias": Weight("ln_final.b"),
    "unembed.weight": Weight("unembed.W_U", "transpose"),
    "unembed.bias": Weight("unembed.b_U"),
    **{f"blocks.{{l}}.{ln}.weight": Weight(f"blocks.{{l}}.{ln}.w") for ln in ("ln1", "ln2", "ln1_post", "ln2_post")},
    **{f"blocks.{{l}}.{ln}.bias": Weight(f"blocks.{{l}}.{ln}.b") for ln in ("ln1", "ln2", "ln1_post", "ln2_post")},
}


def from_transformer_lens(state_dict: Mapping[str, Tensor], config_dict: Config) -> HookedTransformer:
    """A model from a classic HookedTransformer's `state_dict()` and its config as a dict; tensors are shared where possible.

    Raises ConfigError naming a field that is not supported, not known or of the wrong kind, CheckpointError naming a tensor
    that is missing, unexpected or of the wrong shape.
    """
    check_state(state_dict)
    cfg = config_from_transformer_lens(config_dict, len(state_dict))
    state = {_plain_name(name): tensor for name, tensor in state_dict.items() if not BUFFERS.search(name)}
    if config_dict.get("normalization_type", "LN") in ("LNPre", "RMSPre"):
        state |= _folded_norms(cfg)
    if cfg.gated_mlp:
        state |= _gate_biases(state, cfg)
    dtype = next((tensor.dtype for tensor in state.values() if tensor.is_floating_point()), torch.float32)
    model = build_model(cfg, MappingSource(state, "the state dict"), WEIGHTS, (), dtype)
    return cast("HookedTransformer", model)  # these configs have no encoder


def check_state(state_dict: Any) -> None:
    """Raise CheckpointError where this is no mapping of names to tensors."""
    if not isinstance(state_dict, Mapping):
        raise CheckpointError(f"the state dict must map names to tensors, got {type(state_dict).__name__}.")
    for name, tensor in state_dict.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise CheckpointError(f"the state dict must map names to tensors, got {type(tensor).__name__} for {name!r}.")


def _plain_name(name: str) -> str:
    """Grouped keys and values carry a leading underscore, since `W_K` is their expanded view there."""
    return re.sub(r"\.attn\._([Wb]_[KV])$", r".attn.\1", name)


def _folded_norms(cfg: TransformerConfig) -> dict[str, Tensor]:
    """Norms whose gain and bias have been folded into the weights that read them: gain one, bias zero."""
    names = [f"blocks.{layer}.{ln}" for layer in range(cfg.n_layers) for ln in (["ln1"] if cfg.attn_only else ["ln1", "ln2"])]
    norms = {f"{name}.w": torch.ones(cfg.d_model) for name in [*names, "ln_final"]}
    return norms | ({f"{name}.b": torch.zeros(cfg.d_model) for name in [*names, "ln_final"]} if cfg.norm == "layer_norm" else {})


def _gate_biases(state: Mapping[str, Tensor], cfg: TransformerConfig) -> dict[str, Tensor]:
    """The biases of gated MLPs in our form: none before the product, all of them in b_out."""
    biases: dict[str, Tensor] = {}
    for mlp in (f"blocks.{layer}.mlp." for layer in range(cfg.n_layers)):
        if missing := [mlp + name for name in ("b_in", "W_out", "b_out") if mlp + name not in state]:
            raise CheckpointError(f"the state dict lacks tensor '{missing[0]}', which this model needs.")
        b_in, w_out, b_out = state[mlp + "b_in"], state[mlp + "W_out"], state[mlp + "b_out"]
        if b_in.shape != w_out.shape[:1]:
            got, wanted = list(b_in.shape), list(w_out.shape[:1])
            raise CheckpointError(f"tensor '{mlp}b_in' in the state dict has shape {got}, but its W_out asks for {wanted}.")
        zeros = torch.zeros_like(b_in)
        biases |= {f"{mlp}b_out": b_out + b_in @ w_out, f"{mlp}b_in": zeros, f"{mlp}b_gate": zeros}
    return biases


def config_from_transformer_lens(config_dict: Config, n_tensors: int | None = None) -> TransformerConfig:
    """Our config of a classic HookedTransformer's. Raises ConfigError naming what is unsupported, unknown or missing.

    n_tensors: how many the state dict has, which bounds the layers.
    """
    check_fields(config_dict)
    check_layers(config_dict["n_layers"], n_tensors)
    tl = {**DEFAULTS, **config_dict}
    norm, positions = _choice(tl, "normalization_type", NORMS), _choice(tl, "positional_embedding_type", POSITIONS)
    attn_only = bool(tl.get("attn_only"))
    if tl.get("final_rms") and norm == "layer_norm":
        raise ConfigError("final_rms=True with normalization_type='LN' (RMSNorm after LayerNorm blocks) is not supported.")
    return TransformerConfig(
        n_layers=tl["n_layers"],
        d_model=tl["d_model"],
        n_heads=_n_heads(tl),
        d_head=tl["d_head"],
        d_vocab=tl["d_vocab"],
        n_ctx=tl["n_ctx"],
        n_kv_heads=tl.get("n_key_value_heads") or 0,
        d_mlp=0 if attn_only else tl.get("d_mlp") or 4 * tl["d_model"],
        d_vocab_out=max(tl["d_vocab_out"], 0),
        block=_block(tl),
        norm=norm,
        norm_eps=tl["eps"],
        positions=positions,
        rotary=_rotary(tl) if positions == "rotary" else None,
        **_attention(tl),
        qkv_bias=True,
        out_bias=True,
        activation="relu" if attn_only else activation_named(tl.get("act_fn")),
        gated_mlp=bool(tl.get("gated_mlp")) and not attn_only,
        mlp_bias=True,
        unembed_bias=True,
        name=tl.get("model_name") or "",
        family="transformer_lens",
    )


def check_fields(tl: Any) -> None:
    """Raise ConfigError naming a field that is unknown, unsupported, missing or of the wrong kind."""
    if not isinstance(tl, Mapping):
        raise ConfigError(f"the config must be a dict of fields and values, got {type(tl).__name__}.")
    known = {*READ, *WITHOUT_EFFECT, *OFF}
    for field, value in tl.items():
        if field not in known:
            raise ConfigError(f"config field {field!r} is not known{closest(str(field), known)}.")
        if field in OFF and value not in OFF[field]:
            raise ConfigError(f"{field}={value!r} is not supported.")
        if field in FIELD_KINDS:
            FIELD_KINDS[field].check(field, value, "the config")
    if missing := [field for field in ("n_layers", "d_model", "d_head", "n_ctx", "d_vocab") if field not in tl]:
        raise ConfigError(f"the config lacks {', '.join(missing)}.")


def _choice(tl: Config, field: str, choices: Mapping[Any, str]) -> Any:
    if tl[field] not in list(choices):
        raise ConfigError(f"{field}={tl[field]!r} is not supported; known are {', '.join(map(str, choices))}.")
    return choices[tl[field]]


def _n_heads(tl: Config) -> int:
    given = tl.get("n_heads", -1)
    return tl["d_model"] // tl["d_head"] if given in (-1, None) else given


def _block(tl: Config) -> str:
    sandwich, parallel = bool(tl.get("use_normalization_before_and_after")), bool(tl.get("parallel_attn_mlp"))
    if sandwich and parallel:
        raise ConfigError("use_normalization_before_and_after=True with parallel_attn_mlp=True is not supported.")
    return "sandwich" if sandwich else "parallel" if parallel and not tl.get("attn_only") else "pre"


def _attention(tl: Config) -> dict[str, Any]:
    """Scale, mask, QK-norm and soft-caps. There the scores are divided by attn_scale; a bidirectional model ignores windows."""
    divisor = 1.0
    if tl["use_attn_scale"]:
        divisor = math.sqrt(tl["d_head"]) if tl["attn_scale"] == -1.0 else tl["attn_scale"]
    fields: dict[str, Any] = {
        "attn_scale": 1 / divisor,
        "causal": _choice(tl, "attention_dir", {"causal": "yes", "bidirectional": ""}) == "yes",
    }
    if tl.get("use_local_attn") and fields["causal"]:
        fields |= {"window": tl.get("window_size"), "layer_types": _layer_types(tl)}
    if tl.get("use_qk_norm"):
        if tl["normalization_type"] not in ("RMS", "RMSPre"):
            raise ConfigError(
                f"use_qk_norm=True (RMSNorm) with normalization_type={tl['normalization_type']!r} is not supported."
            )
        fields["qk_norm"] = "per_head"
    for ours, theirs in {"attn_softcap": "attn_scores_soft_cap", "logit_softcap": "output_logits_soft_cap"}.items():
        fields[ours] = cap if (cap := tl.get(theirs) or 0) > 0 else None
    return fields


def _layer_types(tl: Config) -> tuple[str, ...]:
    ours: dict[Any, str] = {"global": "full", "local": "sliding"}
    for kind in tl.get("attn_types") or ():
        if kind not in list(ours):
            raise ConfigError(f"attn_types holds {kind!r}, wanted 'global' or 'local'.")
    return tuple(ours[kind] for kind in (tl.get("attn_types") or ())[: tl["n_layers"]])


def _rotary(tl: Config) -> RotaryConfig:
    scaling: dict[str, Any] = {}
    if tl.get("use_NTK_by_parts_rope"):
        scaling = {
            "scaling": "llama3",
            "factor": float(tl["NTK_by_parts_factor"]),
            "low_freq_factor": float(tl["NTK_by_parts_low_freq_factor"]),
            "high_freq_factor": float(tl["NTK_by_parts_high_freq_factor"]),
            "original_n_ctx": tl["NTK_original_ctx_len"],
        }
    dim = tl.get("rotary_dim") or tl["d_head"]
    layout = "interleaved" if tl.get("rotary_adjacent_pairs") else "half"
    return RotaryConfig(base=float(tl["rotary_base"]), dim=None if dim == tl["d_head"] else dim, layout=layout, **scaling)
