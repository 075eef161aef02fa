"""Circuits: the graph of a model's writers and readers, edge scores, selection, pruning, and faithfulness."""

from __future__ import annotations

from .circuit import Circuit as Circuit
from .curve import FaithfulnessCurve as FaithfulnessCurve
from .curve import faithfulness_curve as faithfulness_curve
from .errors import CircuitError as CircuitError
from .evaluate import Evaluation as Evaluation
from .evaluate import Faithfulness as Faithfulness
from .evaluate import evaluate as evaluate
from .graph import Graph as Graph
from .layers import Layer as Layer
from .metrics import METRICS as METRICS
from .metrics import Metric as Metric
from .scores import EdgeScores as EdgeScores
from .scores import ScoreRecord as ScoreRecord
from .search import prune as prune
from .search import select as select
from .trace import trace_circuit as trace_circuit

__all__ = [
    "METRICS",
    "Circuit",
    "CircuitError",
    "EdgeScores",
    "Evaluation",
    "Faithfulness",
    "FaithfulnessCurve",
    "Graph",
    "Layer",
    "Metric",
    "ScoreRecord",
    "evaluate",
    "faithfulness_curve",
    "prune",
    "select",
    "trace_circuit",
]
