"""Loading: a config map and a weight map per family, weights streamed from safetensors or GGUF, and the tokeniser with them."""

from __future__ import annotations

from .load import load_model
from .own_format import save_model
from .tokenizer import Tokenizer
from .transformer_lens import from_transformer_lens

__all__ = ["Tokenizer", "from_transformer_lens", "load_model", "save_model"]
