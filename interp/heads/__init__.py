"""Attention heads: what they attend (`patterns`), how sharply (`metrics`), what their weights do (`weights`, `composition`), what
to call them (`roles`), and `head_scores`, which measures all of it on a model."""

from __future__ import annotations

from .composition import CompositionScores as CompositionScores
from .composition import composition_scores as composition_scores
from .roles import HeadLabel as HeadLabel
from .roles import Thresholds as Thresholds
from .scores import head_scores as head_scores
from .scores_result import HeadScores as HeadScores
from .weights import copying_scores as copying_scores

__all__ = ["CompositionScores", "HeadLabel", "HeadScores", "Thresholds", "composition_scores", "copying_scores", "head_scores"]
