"""Rotary settings from config.json, in its older form (`rope_theta` and `rope_scaling`) and its newer (`rope_parameters`).

Either may be one dict for all layers; `rope_parameters` may instead hold one dict per layer type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...config import RotaryConfig
from ...errors import ConfigError, closest
from .family import HFConfig
from .rules import d_head

Parameters = dict[str, Any]


def rotary(hf: HFConfig) -> RotaryConfig:
    """Rotary settings that all layers share."""
    return rotary_from(hf, shared_parameters(hf), float(hf["rope_theta"]))


def partial_rotary(hf: HFConfig) -> RotaryConfig:
    """Rotary settings that all layers share, of the leading `partial_rotary_factor` of each head."""
    parameters = shared_parameters(hf)
    part = parameters.get("partial_rotary_factor", hf.get("partial_rotary_factor"))
    dim = int(d_head(hf) * (1.0 if part is None else part))
    return rotary_from(hf, parameters, float(hf["rope_theta"]), None if dim == d_head(hf) else dim)


def interleaved_rotary(hf: HFConfig) -> RotaryConfig:
    """As `partial_rotary`, with neighbouring dimensions as pairs."""
    return replace(partial_rotary(hf), layout="interleaved")


def shared_parameters(hf: HFConfig) -> Parameters:
    """The dict of rotary parameters in either form; empty where there is none."""
    return dict(hf.get("rope_parameters") or hf.get("rope_scaling") or {})


def kind_of(parameters: Parameters) -> str:
    """The name of a scaling; the key was `type` before it was `rope_type`."""
    return parameters.get("rope_type") or parameters.get("type") or "default"


def rotary_from(hf: HFConfig, parameters: Parameters, base: float, dim: int | None = None) -> RotaryConfig:
    """Rotary settings from one dict of parameters. Raises ConfigError naming a scaling that is not supported.

    dim: dimensions of a head that are rotated; None for all, whatever `partial_rotary_factor` says, which most families ignore.
    """
    kind = kind_of(parameters)
    if kind not in SCALINGS:
        raise ConfigError(
            f"rotary scaling {kind!r} is not supported; known are {', '.join(SCALINGS)}{closest(str(kind), SCALINGS)}."
        )
    return RotaryConfig(base=float(parameters.get("rope_theta") or base), dim=dim, **SCALINGS[kind](hf, parameters))


def _original_n_ctx(hf: HFConfig, parameters: Parameters) -> int:
    """The context length before scaling."""
    stated = hf.get("original_max_position_embeddings") or parameters.get("original_max_position_embeddings")
    return int(stated or hf["max_position_embeddings"])


def _default(hf: HFConfig, parameters: Parameters) -> Parameters:
    return {}


def _linear(hf: HFConfig, parameters: Parameters) -> Parameters:
    return {"scaling": "linear", "factor": float(parameters["factor"])}


def _dynamic(hf: HFConfig, parameters: Parameters) -> Parameters:
    return {"scaling": "dynamic", "factor": float(parameters["factor"]), "original_n_ctx": int(hf["max_position_embeddings"])}


def _llama3(hf: HFConfig, parameters: Parameters) -> Parameters:
    fields = {field: float(parameters[field]) for field in ("factor", "low_freq_factor", "high_freq_factor")}
    return {"scaling": "llama3", "original_n_ctx": _original_n_ctx(hf, parameters), **fields}


def _yarn(hf: HFConfig, parameters: Parameters) -> Parameters:
    original = _original_n_ctx(hf, parameters)
    factor = float(parameters.get("factor") or hf["max_position_embeddings"] / original)
    return {
        "scaling": "yarn",
        "factor": factor,
        "original_n_ctx": original,
        "beta_fast": float(parameters.get("beta_fast") or 32),
        "beta_slow": float(parameters.get("beta_slow") or 1),
        "attention_factor": _yarn_attention_factor(parameters, factor),
        "truncate": bool(parameters.get("truncate", True)),
    }


def _yarn_attention_factor(parameters: Parameters, factor: float) -> float | None:
    """The stated factor, or the ratio of the two that `mscale` and `mscale_all_dim` give; None leaves it to the scaling."""
    if parameters.get("attention_factor") is not None:
        return float(parameters["attention_factor"])
    if not (parameters.get("mscale") and parameters.get("mscale_all_dim")) or factor <= 1:
        return None
    over, under = (0.1 * parameters[key] * math.log(factor) + 1 for key in ("mscale", "mscale_all_dim"))
    return over / under


def _longrope(hf: HFConfig, parameters: Parameters) -> Parameters:
    original = _original_n_ctx(hf, parameters)
    stated = parameters.get("attention_factor")
    return {
        "scaling": "longrope",
        "factor": float(parameters.get("factor") or hf["max_position_embeddings"] / original),
        "original_n_ctx": original,
        "short_factor": tuple(map(float, parameters["short_factor"])),
        "long_factor": tuple(map(float, parameters["long_factor"])),
        "attention_factor": None if stated is None else float(stated),
    }


def _proportional(hf: HFConfig, parameters: Parameters) -> Parameters:
    part = parameters.get("partial_rotary_factor")
    return {
        "scaling": "proportional",
        "factor": float(parameters.get("factor") or 1),
        "proportion": 1.0 if part is None else float(part),
    }


SCALINGS: dict[str, Callable[[HFConfig, Parameters], Parameters]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,
    "proportional": _proportional,
}
"""By name in config.json; LongRoPE was first called "su"."""


def scaled_n_ctx(hf: HFConfig) -> int:
    """The context length after scaling, in tokens.

    `dynamic` states the length before; `yarn` states it beside the factor. Other scalings count it in max_position_embeddings.
    """
    parameters, length = shared_parameters(hf), hf["max_position_embeddings"]
    if kind_of(parameters) == "dynamic":
        return int(length * parameters["factor"])
    if kind_of(parameters) == "yarn":
        return max(length, int(_original_n_ctx(hf, parameters) * (parameters.get("factor") or 1)))
    return length
