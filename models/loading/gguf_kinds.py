"""The kinds of GGUF file that can be loaded: how their metadata spells a config.json, and what their tensors are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import CheckpointError, ConfigError, closest
from .families.fields import FIELD_KINDS
from .fill import Weight
from .gguf_header import TensorInfo

Metadata = Mapping[str, Any]

FIELDS = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
}
"""Field of config.json -> metadata key, after the architecture's name."""

OPTIONAL_FIELDS = ("num_key_value_heads", "head_dim", "rope_theta")

SCALING_FIELDS = {
    "factor": "rope.scaling.factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
}

WEIGHTS = {
    "embed.weight": Weight("token_embd.weight"),
    "blocks.{l}.ln1.weight": Weight("blk.{l}.attn_norm.weight"),
    "blocks.{l}.attn.q.weight": Weight("blk.{l}.attn_q.weight"),
    "blocks.{l}.attn.q.bias": Weight("blk.{l}.attn_q.bias"),
    "blocks.{l}.attn.k.weight": Weight("blk.{l}.attn_k.weight"),
    "blocks.{l}.attn.k.bias": Weight("blk.{l}.attn_k.bias"),
    "blocks.{l}.attn.v.weight": Weight("blk.{l}.attn_v.weight"),
    "blocks.{l}.attn.v.bias": Weight("blk.{l}.attn_v.bias"),
    "blocks.{l}.attn.o.weight": Weight("blk.{l}.attn_output.weight"),
    "blocks.{l}.attn.o.bias": Weight("blk.{l}.attn_output.bias"),
    "blocks.{l}.attn.q_norm.weight": Weight("blk.{l}.attn_q_norm.weight"),
    "blocks.{l}.attn.k_norm.weight": Weight("blk.{l}.attn_k_norm.weight"),
    "blocks.{l}.ln2.weight": Weight("blk.{l}.ffn_norm.weight"),
    "blocks.{l}.mlp.gate.weight": Weight("blk.{l}.ffn_gate.weight"),
    "blocks.{l}.mlp.gate.bias": Weight("blk.{l}.ffn_gate.bias"),
    "blocks.{l}.mlp.up.weight": Weight("blk.{l}.ffn_up.weight"),
    "blocks.{l}.mlp.up.bias": Weight("blk.{l}.ffn_up.bias"),
    "blocks.{l}.mlp.down.weight": Weight("blk.{l}.ffn_down.weight"),
    "blocks.{l}.mlp.down.bias": Weight("blk.{l}.ffn_down.bias"),
    "ln_final.weight": Weight("output_norm.weight"),
    "unembed.weight": Weight("output.weight"),
}

SANDWICH = {
    "blocks.{l}.ln1_post.weight": Weight("blk.{l}.post_attention_norm.weight"),
    "blocks.{l}.ln2_post.weight": Weight("blk.{l}.post_ffw_norm.weight"),
}

IGNORED = (r"^rope_freqs\.weight$", r"\.attn_rot_embd$")


def _transformed(weights: Mapping[str, Weight], parts: tuple[str, ...], transform: str) -> dict[str, Weight]:
    """The map with a transform on the parameters whose name holds one of these parts."""
    return {ours: Weight(w.name, transform) if any(part in ours for part in parts) else w for ours, w in weights.items()}


@dataclass(frozen=True)
class Kind:
    """A kind of GGUF file: the family whose config its metadata gives, and its weight map."""

    architecture: str
    model_type: str
    weights: Mapping[str, Weight]
    windowed: bool = False

    def hf_config(self, metadata: Metadata, tensors: Mapping[str, TensorInfo], where: str) -> dict[str, Any]:
        """The metadata, spelled as the family's config.json. Raises CheckpointError for a field of the wrong kind."""
        hf: dict[str, Any] = {}
        for field, key in FIELDS.items():
            if (value := self._get(metadata, key)) is not None or field not in OPTIONAL_FIELDS:
                FIELD_KINDS[field].check(f"{self.architecture}.{key}", value, where, CheckpointError)
                hf[field] = value
        hf |= self._token_ids(metadata) | _told_by_tensors(tensors)
        hf.setdefault("head_dim", hf["hidden_size"] // hf["num_attention_heads"])
        self._refuse_unsupported(metadata, hf["head_dim"])
        scaling = self._scaling(metadata)
        return {**hf, **(self._windows(metadata, hf, scaling) if self.windowed else {"rope_scaling": scaling})}

    def _get(self, metadata: Metadata, key: str, default: Any = None) -> Any:
        return metadata.get(f"{self.architecture}.{key}", default)

    def _token_ids(self, metadata: Metadata) -> dict[str, Any]:
        return {field: metadata.get(f"tokenizer.ggml.{field}") for field in ("bos_token_id", "eos_token_id")}

    def _refuse_unsupported(self, metadata: Metadata, d_head: int) -> None:
        only = {"expert_count": (0, None), "attention.value_length": (d_head, None), "rope.dimension_count": (d_head, None)}
        for key, allowed in only.items():
            if (value := self._get(metadata, key)) not in allowed:
                raise ConfigError(
                    f"metadata '{self.architecture}.{key}' is {value!r}, which is not supported for this kind of file."
                )

    def _scaling(self, metadata: Metadata) -> dict[str, Any] | None:
        """Rotary scaling as config.json spells it; None where there is none."""
        kind = self._get(metadata, "rope.scaling.type", "none")
        if kind in ("none", ""):
            return None
        found = {field: self._get(metadata, key) for field, key in SCALING_FIELDS.items()}
        return {"rope_type": kind, **{field: value for field, value in found.items() if value is not None}}

    def _windows(self, metadata: Metadata, hf: Metadata, scaling: dict[str, Any] | None) -> dict[str, Any]:
        """Gemma 3: windows, the two rotary bases, and the scores' scale, which only the 27B model (62 layers) sets apart."""
        full = {"rope_theta": hf.get("rope_theta", 1_000_000.0), **(scaling or {})}
        sliding = {"rope_theta": self._get(metadata, "rope.freq_base_swa", 10_000.0)}
        fields = {
            "sliding_window": self._get(metadata, "attention.sliding_window"),
            "rope_parameters": {"full_attention": full, "sliding_attention": sliding},
            "query_pre_attn_scalar": hf["hidden_size"] / hf["num_attention_heads"]
            if hf["num_hidden_layers"] == 62
            else hf["head_dim"],
        }
        pattern = self._get(metadata, "attention.sliding_window_pattern")
        if isinstance(pattern, list):
            fields["layer_types"] = ["sliding_attention" if sliding else "full_attention" for sliding in pattern]
        elif pattern:
            fields["sliding_window_pattern"] = pattern
        return fields


def _told_by_tensors(tensors: Mapping[str, TensorInfo]) -> dict[str, Any]:
    """What no metadata states: the vocabulary's size, biases, and whether the unembedding is the embedding."""
    if "token_embd.weight" not in tensors:
        raise CheckpointError("the GGUF file lacks tensor 'token_embd.weight', so it holds no language model.")
    return {
        "vocab_size": tensors["token_embd.weight"].shape[0],
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in tensors,
    }


def kind_of(metadata: Metadata, where: str) -> Kind:
    """The kind of a file. Raises CheckpointError listing the known ones, or where the file is one part of several."""
    if metadata.get("split.count", 1) not in (0, 1):
        raise CheckpointError(
            f"{where} is one of {metadata['split.count']} parts of a split model; merge them into one file first."
        )
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in KINDS:
        known = ", ".join(KINDS)
        raise CheckpointError(f"{where} is of kind {architecture!r}, wanted one of {known}{closest(str(architecture), KINDS)}.")
    return KINDS[architecture]


KINDS = {
    kind.architecture: kind
    for kind in (
        Kind("llama", "llama", _transformed(WEIGHTS, (".attn.q.", ".attn.k."), "half_split_rows")),
        Kind("qwen2", "qwen2", WEIGHTS),
        Kind("qwen3", "qwen3", WEIGHTS),
        Kind("gemma3", "gemma3_text", _transformed({**WEIGHTS, **SANDWICH}, ("ln", "_norm"), "minus_one"), windowed=True),
    )
}
