"""Small random models of every block order, and random prompt pairs, for the circuit tests."""

from __future__ import annotations

import torch
from torch import Tensor

from interp.prompts import PromptPairs
from models import HookedTransformer, TransformerConfig

SIZES = {"n_layers": 2, "d_model": 24, "n_heads": 4, "d_head": 6, "d_vocab": 17, "n_ctx": 16}

VARIANTS: dict[str, dict] = {
    "gpt2": {"d_mlp": 20, "qkv_bias": True, "out_bias": True, "mlp_bias": True},
    "llama_gqa": {
        "norm": "rms_norm",
        "positions": "rotary",
        "n_kv_heads": 2,
        "d_mlp": 20,
        "gated_mlp": True,
        "activation": "silu",
    },
    "gemma_mqa": {
        "block": "sandwich",
        "norm": "rms_norm_offset",
        "positions": "rotary",
        "n_kv_heads": 1,
        "d_mlp": 20,
        "gated_mlp": True,
        "qk_norm": "per_head",
        "window": 4,
        "layer_types": ("sliding", "full"),
        "attn_softcap": 5.0,
        "logit_softcap": 9.0,
    },
    "sandwich_bias": {"block": "sandwich", "d_mlp": 20, "qkv_bias": True, "out_bias": True, "mlp_bias": True},
    "neox": {"block": "parallel", "positions": "rotary", "d_mlp": 20, "qkv_bias": True, "out_bias": True, "mlp_bias": True},
    "bert": {
        "block": "post",
        "causal": False,
        "final_norm": False,
        "d_mlp": 20,
        "qkv_bias": True,
        "out_bias": True,
        "mlp_bias": True,
    },
    "post_attn_only": {"block": "post", "norm": "rms_norm", "final_norm": False},
    "attn_only": {"out_bias": True},
    "no_norm": {"norm": "none", "d_mlp": 20},
}


def tiny_model(variant: str, seed: int = 0, dtype: torch.dtype = torch.float64, **changes: object) -> HookedTransformer:
    """A random model whose norms, gains and biases all matter."""
    model = HookedTransformer(TransformerConfig(**{**SIZES, **VARIANTS[variant], "name": variant, **changes}))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "ln" in name or "norm" in name:
                parameter.add_(0.3 * noise)
            else:
                parameter.copy_((0.3 if parameter.dim() > 1 else 0.2) * noise)
    return model.to(dtype)


def random_pairs(
    n: int = 4, length: int = 7, *, lengths: list[int] | None = None, side: str = "right", seed: int = 0
) -> PromptPairs:
    """Pairs that differ at two positions, with one to two answers and wrong answers each."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randint(0, SIZES["d_vocab"], shape, generator=generator)

    lengths = [length] * n if lengths is None else lengths
    prompts = []
    for i, size in enumerate(lengths):
        clean = draw(size)
        corrupt = clean.clone()
        corrupt[:2] = (clean[:2] + 1 + draw(2) % 15) % SIZES["d_vocab"]
        tokens = torch.randperm(SIZES["d_vocab"], generator=generator)
        prompts.append(
            {
                "clean": clean.tolist(),
                "corrupt": corrupt.tolist(),
                "answers": tokens[: 1 + i % 2].tolist(),
                "wrong_answers": tokens[5:6].tolist(),
            }
        )
    return PromptPairs.from_prompts(prompts, tiny_model("attn_only"), padding_side=side)


def close(a: Tensor, b: Tensor, tolerance: float) -> bool:
    """Largest difference within `tolerance` of the largest magnitude."""
    a, b = a.detach(), b.detach()
    return float((a - b).abs().max()) <= tolerance * max(float(b.abs().max()), 1e-12)
