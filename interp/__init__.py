"""Analyses of attention heads and circuits in trained Transformers.

Nothing here imports a model at module level: every analysis asks for something that fits `HookedModel`. `load_model` is
the one door to the toolkit's own models.
"""

from __future__ import annotations

from typing import Any

from .circuits import Circuit as Circuit
from .circuits import EdgeScores as EdgeScores
from .circuits import Graph as Graph
from .circuits import evaluate as evaluate
from .circuits import faithfulness_curve as faithfulness_curve
from .circuits import prune as prune
from .circuits import select as select
from .circuits import trace_circuit as trace_circuit
from .errors import InterpError as InterpError
from .errors import PromptError as PromptError
from .heads import HeadScores as HeadScores
from .heads import composition_scores as composition_scores
from .heads import head_scores as head_scores
from .prompts import PromptPairs as PromptPairs
from .prompts import ioi_pairs as ioi_pairs
from .prompts import repeated_token_pairs as repeated_token_pairs
from .prompts import repeated_tokens as repeated_tokens
from .protocol import HookedModel as HookedModel


def load_model(source: Any, **options: Any) -> Any:
    """A `HookedTransformer` from a name, a folder or a .gguf file; see `models.load_model`.

    Raises ImportError, naming the path, where another package called `models` is in the way.
    """
    from ._own_models import import_models

    return import_models().load_model(source, **options)
