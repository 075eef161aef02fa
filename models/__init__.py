"""A hookable Transformer: `HookedTransformer`, its `TransformerConfig`, and `load_model`, which never goes to a network."""

from __future__ import annotations

from typing import Any

from .attention.general import GeneralAttention as GeneralAttention
from .cache import KVCache as KVCache
from .config import RotaryConfig as RotaryConfig
from .config import TransformerConfig as TransformerConfig
from .encoder_decoder import HookedEncoderDecoder as HookedEncoderDecoder
from .errors import CheckpointError as CheckpointError
from .errors import ConfigError as ConfigError
from .errors import HookError as HookError
from .errors import InputError as InputError
from .hooks import ActivationCache as ActivationCache
from .hooks import HookPoint as HookPoint
from .register import register as register
from .small_tokenizers import CharacterTokenizer as CharacterTokenizer
from .small_tokenizers import WordTokenizer as WordTokenizer
from .transformer import HookedTransformer as HookedTransformer


def load_model(source: Any, **options: Any) -> Any:
    """A `HookedTransformer`, or of an encoder-decoder's checkpoint a `HookedEncoderDecoder`, from a name, a folder or a file.

    See `models.loading.load_model`.
    """
    from .loading import load_model

    return load_model(source, **options)
