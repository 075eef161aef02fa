"""Tiny models of every block order, norm, position, mask and MLP; no weight is at its neutral value."""

from __future__ import annotations

import torch

from models import HookedTransformer, RotaryConfig, TransformerConfig

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
    | {"layer_types": ("sliding", "sliding", "full"), "rotary": RotaryConfig(base=1e6), "rotary_sliding": RotaryConfig()},
    "encoder": {"block": "post", "final_norm": False, "causal": False, "activation": "gelu", "qkv_bias": True},
    "encoder_sliding": {"causal": False, "window": 3, "layer_types": ("sliding", "full", "sliding")},
    "attn_only": {"d_mlp": 0, "norm": "none"},
    "post_attn_only": {"d_mlp": 0, "block": "post", "final_norm": False},
    "no_positions": {"positions": "none", "d_vocab_out": 7, "unembed_bias": True, "activation": "relu"},
}


def tiny_config(variant: str, **changes) -> TransformerConfig:
    sizes = {"n_layers": 3, "d_model": 32, "n_heads": 4, "d_head": 8, "d_vocab": 50, "n_ctx": 40, "d_mlp": 48}
    return TransformerConfig(**(sizes | VARIANTS[variant] | changes))


def tiny_model(variant: str, seed: int = 0, dtype: torch.dtype = torch.float32, **changes) -> HookedTransformer:
    """A model whose every parameter, norms and biases included, is shifted at random."""
    model = HookedTransformer(tiny_config(variant, **changes))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5
            start = 1.0 if name.endswith("weight") and parameter.dim() == 1 and model.cfg.norm != "rms_norm_offset" else 0.0
            parameter.copy_(start + spread * torch.randn(parameter.shape, generator=generator))
    return model.to(dtype)


def tiny_tokens(batch: int = 2, length: int = 9, seed: int = 1, d_vocab: int = 50) -> torch.Tensor:
    return torch.randint(0, d_vocab, (batch, length), generator=torch.Generator().manual_seed(seed))
