"""What happens to pattern @ v (`hook_mixed`) before the output weights read it (`hook_z`): gates and norms.

An out step is a `Part`, made as step(cfg, layer), that maps (z [batch, pos, head, d_value], x, context) to a new z; x
[batch, pos, d_model] is what the queries were made of.
"""

from __future__ import annotations

from ..hooked import Part

OUT_STEPS: dict[str, type[Part]] = {}
