"""What happens to pattern @ v (`hook_mixed`) before the output weights read it (`hook_z`): gates and norms.

An out step is an `OutStep`, made as step(cfg, layer), that maps (z [batch, pos, head, d_value], x, context) to a new z; x
[batch, pos, d_model], or one per head, is what the queries were made of.
"""

from __future__ import annotations

from ..hooked import Part
from .gate import Gate
from .gated_norm import GatedNorm
from .head_norm import DifferentialNorm, HeadNorm

OUT_STEPS: dict[str, type[Part]] = {
    "gate": Gate,
    "head_norm": HeadNorm,
    "gated_norm": GatedNorm,
    "differential_norm": DifferentialNorm,
}
