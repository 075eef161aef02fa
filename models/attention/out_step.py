"""The base of all out steps."""

from __future__ import annotations

from ..config import TransformerConfig
from ..hooked import Part


class OutStep(Part):
    """Something that happens to pattern @ v before the output weights read it. `reads_input`: it makes use of x.

    A step may show how it changes its layer's pattern. While it `wants_pattern`, the layer takes the dense path and leaves the
    pattern in `context.shared["pattern", layer]`.
    """

    reads_input = False

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer

    @property
    def wants_pattern(self) -> bool:
        return False
