"""The families of checkpoints that can be loaded, each a config map and a weight map."""

from __future__ import annotations

from typing import Any

from ...errors import CheckpointError, closest
from .bart import BART, MARIAN
from .bert import BERT, DISTILBERT, ROBERTA
from .bloom import BLOOM
from .cohere import COHERE, COHERE2
from .deberta import DEBERTA, DEBERTA_V2
from .deepseek import DEEPSEEK2, DEEPSEEK3, DEEPSEEK32, GLM5
from .diffllama import DIFFLLAMA
from .experts import MIXTRAL, QWEN2_MOE, QWEN3_MOE
from .falcon import FALCON
from .family import Family
from .gemma import GEMMA1, GEMMA2, GEMMA3
from .gemma3n import GEMMA3N
from .gemma4 import GEMMA4
from .glm import GLM, GLM4
from .gpt2 import GPT2
from .gpt_bigcode import GPT_BIGCODE
from .gpt_neo import GPT_NEO
from .gpt_neox import GPT_NEOX
from .gpt_oss import GPT_OSS
from .gptj import GPTJ
from .kimi_linear import KIMI_LINEAR
from .llama import LLAMA, MISTRAL, QWEN2, QWEN3
from .llama4 import LLAMA4
from .llama_relatives import GRANITE, MINISTRAL3, SMOLLM3
from .mamba2 import MAMBA2
from .minimax import MINIMAX
from .modernbert import MODERNBERT
from .mpt import MPT
from .olmo import OLMO2, OLMO3
from .olmo_hybrid import OLMO_HYBRID
from .opt import OPT
from .phi import PHI, PHI3
from .qwen3_next import QWEN3_NEXT
from .sparse_bert import BIG_BIRD, LONGFORMER
from .stablelm import STABLELM
from .t5 import MT5, T5, UMT5

FAMILIES: dict[str, Family] = {
    model_type: family
    for family in (
        *(GPT2, GPT_NEO, GPT_NEOX, GPTJ, GPT_BIGCODE, OPT, BLOOM, MPT, FALCON),
        *(LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA1, GEMMA2, GEMMA3, GEMMA3N, GEMMA4, PHI, PHI3, STABLELM, GLM, GLM4),
        *(MIXTRAL, QWEN2_MOE, QWEN3_MOE, GPT_OSS, LLAMA4),
        *(DEEPSEEK2, DEEPSEEK3, DEEPSEEK32, GLM5),
        *(OLMO2, OLMO3, COHERE, COHERE2, SMOLLM3, GRANITE, MINISTRAL3, DIFFLLAMA),
        *(MAMBA2, OLMO_HYBRID, QWEN3_NEXT, KIMI_LINEAR, MINIMAX),
        *(BERT, ROBERTA, DISTILBERT, DEBERTA, DEBERTA_V2, MODERNBERT, LONGFORMER, BIG_BIRD),
        *(T5, MT5, UMT5, BART, MARIAN),
    )
    for model_type in family.model_types
}


def family_of(model_type: Any, where: str) -> Family:
    """The family that a `model_type` belongs to. Raises CheckpointError, with near matches, for one we do not have."""
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise CheckpointError(
            f"{where} has model_type {model_type!r}, which is none of the {len(FAMILIES)} known ones"
            f"{closest(str(model_type), FAMILIES)}; docs/families.md lists them."
        )
    return FAMILIES[model_type]


__all__ = ["FAMILIES", "Family", "family_of"]
