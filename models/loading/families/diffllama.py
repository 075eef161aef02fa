"""DiffLlama: Llama with differential attention (Ye et al. 2024, arXiv 2410.05258).

Its files count the two halves of a pair as heads: the first halves of all pairs, then the second. A head of ours is a pair.
"""

from __future__ import annotations

from ...config import RotaryConfig
from ...errors import ConfigError
from ..fill import Weight
from .family import Family, HFConfig
from .llama import CONFIG, CONSTANTS, DEFAULTS, IGNORED, PREFIXES, WEIGHTS
from .rotary import rotary_from, shared_parameters
from .rules import d_head, n_kv_heads


def _pairs(field: str, count: int) -> int:
    if count % 2:
        raise ConfigError(f"{field} counts both halves of each pair, so it must be even, got {count}.")
    return count // 2


def _rotary(hf: HFConfig) -> RotaryConfig:
    return rotary_from(hf, shared_parameters(hf), float(hf["rope_theta"]), d_head(hf))


_SPLIT = tuple(f"blocks.{{l}}.attn.{name}.{part}" for name in "qkv" for part in ("weight", "bias"))

DIFFLLAMA = Family(
    name="diffllama",
    model_types=("diffllama",),
    defaults={**DEFAULTS, "rms_norm_eps": 1e-5},
    constants={**CONSTANTS, "mixer": "differential", "out_steps": ("differential_norm",)},
    config={
        **CONFIG,
        "n_heads": lambda hf: _pairs("num_attention_heads", hf["num_attention_heads"]),
        "n_kv_heads": lambda hf: _pairs("num_key_value_heads", n_kv_heads(hf)),
        "d_head": lambda hf: 2 * d_head(hf),
        "attn_scale": lambda hf: d_head(hf) ** -0.5,
        "rotary": _rotary,
    },
    weights={
        **WEIGHTS,
        **{ours: Weight(WEIGHTS[ours], "joined_halves") for ours in _SPLIT},
        **{
            f"blocks.{{l}}.attn.normaliser.lambda_{name}": f"{{base}}layers.{{l}}.self_attn.lambda_{name}"
            for name in ("q1", "k1", "q2", "k2")
        },
    },
    prefixes=PREFIXES,
    ignored=IGNORED,
)
