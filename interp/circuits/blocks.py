"""A model's blocks as a graph sees them: what their mixers read, how many heads write, whether there is an MLP."""

from __future__ import annotations

from typing import Any

from .errors import CircuitError
from .layers import Feeds, Layer, groups


def layer_of(model: Any, layer: int) -> Layer:
    """What one layer of a model reads and writes.

    Raises CircuitError for a layer with cross-attention, whose keys and values are of another stream, for one with token
    embeddings of its own, which reach the stream at every layer, and for blocks that keep several streams.
    """
    block = model.blocks[layer]
    if block.cfg.cross_attention:
        raise CircuitError(
            f"circuits are traced in one residual stream, and layer {layer} also attends to an encoder's; "
            "models with cross-attention cannot be traced yet."
        )
    if block.cfg.d_layer_embed:
        raise CircuitError(
            f"circuits are made of an input, heads and MLPs, and layer {layer} also adds embeddings of the tokens of its own "
            "(d_layer_embed); such models cannot be traced yet."
        )
    if block.order.streams is not None:
        raise CircuitError(
            f"circuits are traced in one residual stream, and this model's {block.cfg.block} blocks keep several side by side; "
            "such models cannot be traced yet."
        )
    mixer, n_heads = block.attn, len(block.attn.W_O)
    sizes = {"mlp": not block.cfg.attn_only, "parallel": block.order.parallel}
    if not mixer.readers:
        return Layer.whole(n_heads, **sizes)
    own = _fed(mixer, n_heads, mixed=getattr(mixer, "mixes_heads", False))
    return Layer(n_heads, own, **sizes, **_borrowed(model, layer, n_heads))


def _fed(mixer: Any, n_heads: int, *, mixed: bool) -> tuple[tuple[str, Feeds], ...]:
    """By kind, the heads that each of a mixer's readers feeds. mixed: queries and keys reach every head."""
    everything = tuple(range(n_heads))
    return tuple((kind, (everything,) * n if mixed and kind in "qk" else groups(n, n_heads)) for kind, n in mixer.readers.items())


def _borrowed(model: Any, layer: int, n_heads: int) -> dict[str, Any]:
    """`source` and `borrowed` of a layer that uses keys and values of an earlier one, or sees the keys that it chose."""
    mixer = model.blocks[layer].attn
    if "k" not in mixer.readers:
        source = mixer.cfg.kv_from
        lent = _fed(model.blocks[source].attn, n_heads, mixed=False)
        return {"source": source, "borrowed": tuple(each for each in lent if each[0] in "kv")}
    if getattr(mixer, "reuses_selection", False):
        source = next(i for i in reversed(range(layer)) if not getattr(model.blocks[i].attn, "reuses_selection", False))
        lent = _fed(model.blocks[source].attn, n_heads, mixed=True)
        return {"source": source, "borrowed": tuple(each for each in lent if each[0] in "qk")}
    return {}
