"""What the fields of other programs' configs may hold: checked once, where a config comes in, so that rules can rely on it."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError


@dataclass(frozen=True)
class FieldKind:
    """What a field must be: in words, and as a test."""

    words: str
    fits: Callable[[Any], bool]

    def or_null(self) -> FieldKind:
        return FieldKind(f"{self.words} or null", lambda value: value is None or self.fits(value))

    def check(self, field: str, value: Any, where: str, error: type[ValueError] = ConfigError) -> None:
        """Raise `error` where the value is of another kind."""
        if not self.fits(value):
            raise error(f"'{field}' in {where} must be {self.words}, got {reprlib.repr(value)}.")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _token_ids(value: Any) -> bool:
    return value is None or _whole(value) or (isinstance(value, list) and all(map(_whole, value)))


WHOLE = FieldKind("a whole number", _whole)
SIZE = FieldKind("a positive whole number", lambda value: _whole(value) and value > 0)
NUMBER = FieldKind("a number", lambda value: _whole(value) or (isinstance(value, float) and math.isfinite(value)))
FLAG = FieldKind("true or false", lambda value: isinstance(value, bool))
TEXT = FieldKind("text", lambda value: isinstance(value, str))
TOKEN_IDS = FieldKind("a token id or a list of them", _token_ids)


def kinds(table: Mapping[FieldKind, str]) -> dict[str, FieldKind]:
    """The kind of each field, from the fields of each kind, which are separated by spaces."""
    return {field: kind for kind, fields in table.items() for field in fields.split()}


FIELD_KINDS = kinds(
    {
        SIZE: "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads max_position_embeddings "
        "n_embd n_layer n_head n_positions",
        SIZE.or_null(): "num_key_value_heads head_dim n_inner sliding_window sliding_window_pattern _sliding_window_pattern "
        "original_max_position_embeddings",
        WHOLE: "max_window_layers",
        WHOLE.or_null(): "bos_token_id",
        NUMBER: "rms_norm_eps layer_norm_eps layer_norm_epsilon rope_theta rope_local_base_freq rotary_emb_base rotary_pct "
        "query_pre_attn_scalar low_freq_factor high_freq_factor",
        NUMBER.or_null(): "attn_logit_softcapping final_logit_softcapping partial_rotary_factor factor attention_factor "
        "beta_fast beta_slow mscale mscale_all_dim",
        FLAG: "tie_word_embeddings attention_bias mlp_bias use_parallel_residual scale_attn_weights use_sliding_window truncate",
        TEXT.or_null(): "hidden_act hidden_activation activation_function rope_type type",
        TOKEN_IDS: "eos_token_id",
    }
)
"""By field of config.json, or of the rotary parameters inside it."""

ROTARY_PARTS = ("rope_parameters", "rope_scaling", "full_attention", "sliding_attention")


def check_fields(config: Mapping[str, Any], where: str) -> None:
    """Raise ConfigError where a field of config.json, or of its rotary parameters, is of the wrong kind."""
    for field, value in config.items():
        if field in FIELD_KINDS:
            FIELD_KINDS[field].check(field, value, where)
        elif field in ROTARY_PARTS and isinstance(value, dict):
            check_fields(value, f"{field} of {where}")
