"""Tiny models of every block order, norm, position, mask and MLP; no weight is at its neutral value."""

from __future__ import annotations

import torch

from models import HookedTransformer, RotaryConfig, TransformerConfig
from models.config import TemperatureConfig
from tests.models import (
    variants_encoders,
    variants_experts,
    variants_gemma3n,
    variants_general,
    variants_latent,
    variants_linear,
    variants_positions,
    variants_seq2seq,
)

_LLAMA = {"positions": "rotary", "norm": "rms_norm", "gated_mlp": True, "activation": "silu", "n_kv_heads": 2}

VARIANTS: dict[str, dict] = {
    "gpt2": {"qkv_bias": True, "out_bias": True, "mlp_bias": True, "tie_embeddings": True},
    "neox": {"block": "parallel", "positions": "rotary", "rotary": RotaryConfig(dim=4), "qkv_bias": True, "out_bias": True},
    "neox_interleaved": {"block": "parallel", "positions": "rotary", "rotary": RotaryConfig(dim=4, layout="interleaved")},
    "llama": _LLAMA,
    "mqa": _LLAMA | {"n_kv_heads": 1},
    "mistral": _LLAMA | {"window": 4},
    "qwen3": _LLAMA | {"qk_norm": "per_head"},
    "linear": _LLAMA | {"rotary": RotaryConfig(scaling="linear", factor=4.0)},
    "dynamic": _LLAMA | {"rotary": RotaryConfig(scaling="dynamic", factor=4.0, original_n_ctx=6)},
    "llama3": _LLAMA | {"rotary": RotaryConfig(scaling="llama3", factor=8.0, original_n_ctx=16)},
    "yarn": _LLAMA | {"rotary": RotaryConfig(scaling="yarn", factor=4.0, original_n_ctx=16)},
    "gemma2": _LLAMA
    | {"block": "sandwich", "norm": "rms_norm_offset", "attn_softcap": 4.0, "logit_softcap": 3.0, "window": 4}
    | {"layer_types": ("sliding", "full", "sliding"), "embed_scale": 5.5},
    "gemma3": _LLAMA
    | {"block": "sandwich", "norm": "rms_norm_offset", "qk_norm": "per_head", "window": 4}
    | {
        "layer_types": ("sliding", "sliding", "full"),
        "rotary": RotaryConfig(base=1e6),
        "by_type": {"sliding": {"rotary": RotaryConfig()}},
    },
    "encoder": {"block": "post", "final_norm": False, "causal": False, "activation": "gelu", "qkv_bias": True},
    "encoder_sliding": {"causal": False, "window": 3, "layer_types": ("sliding", "full", "sliding")},
    "attn_only": {"d_mlp": 0, "norm": "none"},
    "post_attn_only": {"d_mlp": 0, "block": "post", "final_norm": False},
    "parallel_shared": {"block": "parallel_shared", "positions": "rotary", "norm_bias": False, "logit_scale": 0.5},
    "output_norm": _LLAMA | {"block": "output_norm", "qk_norm": "full_width"},
    "own_per_head": _LLAMA | {"norm": "layer_norm", "qk_norm": "own_per_head", "residual_scale": 0.7},
    "l2_norm": _LLAMA | {"qk_norm": "l2", "qk_norm_place": "after", "temperature": TemperatureConfig(scale=0.5, floor_scale=3.0)},
    "some_layers_without_positions": _LLAMA
    | {"layer_types": ("rope", "rope", "nope"), "by_type": {"nope": {"positions": "none"}}},
    "layers_of_two_shapes": _LLAMA
    | {"layer_types": ("sliding", "full", "sliding"), "window": 4}
    | {"by_type": {"full": {"n_heads": 2, "n_kv_heads": 1, "d_head": 16, "d_mlp": 32}}},
    "wide_values": {"d_value": 12, "out_bias": True, "n_kv_heads": 2},
    "bert": {"block": "post", "final_norm": False, "causal": False, "n_token_types": 2, "embed_norm": True, "position_offset": 2}
    | {"head": "mlm", "activation": "gelu", "qkv_bias": True, "out_bias": True, "mlp_bias": True, "unembed_bias": True},
    "sinusoidal": {"positions": "sinusoidal", "sinusoidal_layout": "half", "head": "none"},
    "no_positions": {"positions": "none", "d_vocab_out": 7, "unembed_bias": True, "activation": "relu"},
}

VARIANTS |= variants_encoders.VARIANTS
VARIANTS |= variants_experts.VARIANTS
VARIANTS |= variants_gemma3n.VARIANTS
VARIANTS |= variants_general.VARIANTS
VARIANTS |= variants_latent.VARIANTS
VARIANTS |= variants_linear.VARIANTS
VARIANTS |= variants_positions.VARIANTS
VARIANTS |= variants_seq2seq.VARIANTS


def tiny_config(variant: str, **changes) -> TransformerConfig:
    sizes = {"n_layers": 3, "d_model": 32, "n_heads": 4, "d_head": 8, "d_vocab": 50, "n_ctx": 40, "d_mlp": 48}
    return TransformerConfig(**(sizes | VARIANTS[variant] | changes))


def tiny_model(variant: str, seed: int = 0, dtype: torch.dtype = torch.float32, **changes) -> HookedTransformer:
    """A model whose every parameter, norms and biases included, is shifted at random."""
    model = HookedTransformer(tiny_config(variant, **changes))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_vector = parameter.dim() == 1 or "_norm" in name
            spread = 0.3 if is_vector else parameter.shape[-1] ** -0.5
            start = 1.0 if name.endswith(("weight", "scalar")) and is_vector and model.cfg.norm != "rms_norm_offset" else 0.0
            parameter.copy_(start + spread * torch.randn(parameter.shape, generator=generator))
    return model.to(dtype)


def tiny_tokens(batch: int = 2, length: int = 9, seed: int = 1, d_vocab: int = 50) -> torch.Tensor:
    return torch.randint(0, d_vocab, (batch, length), generator=torch.Generator().manual_seed(seed))
