"""What is added to the scaled scores of a layer before soft-cap and mask: relative positions.

A score term is a `Part`, made as term(cfg, layer), that maps (q, k, context) to [batch or 1, head or 1, query, key]; q and k
are what the scores are made of. `cfg.score_terms` says which a layer has.
"""

from __future__ import annotations

from ..hooked import Part
from ..positions.alibi import Alibi
from ..positions.t5_bias import T5Bias
from .key_counts import KeyCounts

SCORE_TERMS: dict[str, type[Part]] = {"alibi": Alibi, "t5_bias": T5Bias, "key_counts": KeyCounts}
