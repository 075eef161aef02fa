"""What the header of a GGUF file says, spelled as a config.json: fields that metadata state, and what only tensors tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import CheckpointError, ConfigError
from .families.fields import FIELD_KINDS, NUMBER, SIZE, FieldKind
from .gguf_header import TensorInfo

Fields = dict[str, Any]

SIZES = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "max_position_embeddings": "context_length",
}
GROUPS = {"num_key_value_heads": "attention.head_count_kv?"}
ROPE = {"rope_theta": "rope.freq_base?"}
RMS_NORM = {"rms_norm_eps": "attention.layer_norm_rms_epsilon"}
LAYER_NORM = {"layer_norm_eps": "attention.layer_norm_epsilon"}
WINDOW = {"sliding_window": "attention.sliding_window?"}
LLAMA = {**SIZES, **GROUPS, "head_dim": "attention.key_length?", **RMS_NORM, **ROPE}
"""Field of config.json -> metadata key, after the architecture's name; "?" ends one that a file may leave out."""

SCALING = {
    "factor": "rope.scaling.factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
}


@dataclass(frozen=True)
class Facts:
    """A file's header. Called with a metadata key, less the architecture's name before it, it gives the value or the default."""

    architecture: str
    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    where: str

    def __call__(self, key: str, default: Any = None) -> Any:
        value = self.metadata.get(f"{self.architecture}.{key}")
        return default if value is None else value

    def has(self, tensor: str) -> bool:
        return tensor in self.tensors

    def checked(self, key: str, kind: FieldKind, default: Any = None) -> Any:
        """As calling it. Raises CheckpointError where the value is of another kind."""
        value = self(key, default)
        kind.check(f"{self.architecture}.{key}", value, self.where, CheckpointError)
        return value

    def fields(self, wanted: Mapping[str, str]) -> Fields:
        """The fields of config.json that the metadata state. Raises CheckpointError for one that is missing or of the wrong kind.

        0 stands for "none" where a field can only be positive, such as the length of a window.
        """
        hf: Fields = {}
        for field, stated in wanted.items():
            key, kind = stated.rstrip("?"), FIELD_KINDS.get(field, NUMBER)
            value = self(key)
            is_none = value is None or (type(value) is int and value == 0 and (field == "sliding_window" or not kind.fits(0)))
            if stated.endswith("?") and is_none:
                continue
            hf[field] = self.checked(key, kind)
            if value is None:
                raise CheckpointError(f"{self.where} lacks '{self.architecture}.{key}', which this kind of file needs.")
        return hf

    def d_head(self) -> int:
        """The width of a head: stated, or the model's width shared out among its heads."""
        heads = self.checked("attention.head_count", SIZE)
        return self.checked("attention.key_length", SIZE, self.checked("embedding_length", SIZE) // heads)

    def refuse(self, allowed: Mapping[str, tuple[Any, ...]]) -> None:
        """Raise ConfigError where a key has another value than those at which it makes no difference."""
        for key, values in allowed.items():
            if self(key) is not None and self(key) not in values:
                raise ConfigError(
                    f"metadata '{self.architecture}.{key}' is {self(key)!r}, which is not supported for this kind of file."
                )

    def told_by_tensors(self) -> Fields:
        """What no metadata states: the vocabulary's size, biases, and whether the unembedding is the embedding."""
        if not self.has("token_embd.weight"):
            raise CheckpointError("the GGUF file lacks tensor 'token_embd.weight', so it holds no language model.")
        biased = self.has("blk.0.attn_q.bias") or self.has("blk.0.attn_qkv.bias")
        return {
            "vocab_size": self.tensors["token_embd.weight"].shape[0],
            "tie_word_embeddings": not self.has("output.weight"),
            **dict.fromkeys(("attention_bias", "qkv_bias", "use_qkv_bias"), biased),
            "mlp_bias": self.has("blk.0.ffn_up.bias"),
        }

    def token_ids(self) -> Fields:
        return {field: self.metadata.get(f"tokenizer.ggml.{field}") for field in ("bos_token_id", "eos_token_id")}

    def scaling(self) -> Fields:
        """Rotary scaling as config.json spells it."""
        kind = self("rope.scaling.type", "none")
        if kind in ("none", ""):
            return {"rope_type": "default"}
        found = {field: self(key) for field, key in SCALING.items()}
        return {"rope_type": kind, **{field: value for field, value in found.items() if value is not None}}

    def rotated_part(self) -> float:
        """The part of each head that is rotated, such that the width times it, rounded down, is the stated number."""
        width = self.d_head()
        rotated = self.checked("rope.dimension_count", SIZE, width)
        return 1.0 if rotated == width else (rotated + 0.5) / width

    def layer_types(self) -> Fields:
        """Which layers slide: listed, or all but every n-th; empty where the file leaves it to its kind."""
        pattern = self("attention.sliding_window_pattern")
        if isinstance(pattern, list):
            return {"layer_types": ["sliding_attention" if sliding else "full_attention" for sliding in pattern]}
        return {"sliding_window_pattern": pattern} if pattern else {}
