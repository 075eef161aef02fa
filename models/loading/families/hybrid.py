"""What families that mix linear and softmax layers share: which layer is which, and the weights of a delta mixer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...errors import ConfigError
from ..fill import Weight
from .family import HFConfig

KINDS = {"full_attention": "full", "linear_attention": "linear"}


def hybrid_layer_types(hf: HFConfig, is_full: Callable[[int], bool]) -> tuple[str, ...]:
    """`layer_types` in our words, or, where there are none, what `is_full` says of each layer.

    Raises ConfigError for a type we do not have.
    """
    listed = hf.get("layer_types")
    if listed is None:
        return tuple("full" if is_full(layer) else "linear" for layer in range(hf["num_hidden_layers"]))
    for kind in listed:
        if kind not in KINDS:
            raise ConfigError(f"layer_types holds {kind!r}, which is not supported; known are {', '.join(KINDS)}.")
    return tuple(KINDS[kind] for kind in listed)


DELTA_WEIGHTS: dict[str, str | tuple[str, str]] = {
    **{f"{part}.weight": f"{part}_proj.weight" for part in "qkvo"},
    **{f"conv_{part}.weight": (f"{part}_conv1d.weight", "channels") for part in "qkv"},
    "beta.weight": "b_proj.weight",
    "out_steps.gated_norm.weight": "o_norm.weight",
}
"""Parameters of our delta mixers -> tensors, with their transform, of checkpoints that keep one matrix for each."""


def mixer_weights(mixer: str, module: str, weights: Mapping[str, str | tuple[str, str]]) -> dict[str, Weight]:
    """Entries of a weight map that hold in layers with this mixer only, whose checkpoints call it `module`."""
    pairs = {ours: theirs if isinstance(theirs, tuple) else (theirs, "as_is") for ours, theirs in weights.items()}
    return {
        f"{mixer}:blocks.{{l}}.attn.{ours}": Weight(f"{{base}}layers.{{l}}.{module}.{name}", transform)
        for ours, (name, transform) in pairs.items()
    }
