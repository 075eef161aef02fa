"""What a kind of GGUF file is: how its metadata spell a config.json, and what was done to its tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..fill import Weight
from ..gguf_facts import Facts, Fields
from ..gguf_header import TensorInfo
from ..gguf_names import weight_map

Derived = Callable[[Facts, Fields], Fields]

NO_OP: dict[str, tuple[Any, ...]] = {
    "expert_count": (0,),
    "rope.scale_linear": (1.0,),
    "rope.scaling.attn_factor": (1.0,),
    "rope.scaling.yarn_attn_factor": (1.0,),
    "rope.scaling.yarn_log_multiplier": (0.0,),
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.sliding_window": (0,),
}
"""Keys that most kinds do not read -> the values at which they make no difference."""

WIDTHS = ("attention.value_length", "rope.dimension_count")
"""Keys that must be the width of a head in kinds that do not read them."""


def nothing(facts: Facts, hf: Fields) -> Fields:
    """No field follows from others."""
    return {}


@dataclass(frozen=True)
class Kind:
    """A kind of GGUF file, as data."""

    architecture: str
    """The value of `general.architecture`."""
    family: str | Callable[[Facts], str]
    """The `model_type` of the family that its models belong to."""
    fields: Mapping[str, str]
    """Field of config.json -> metadata key; see `gguf_facts.LLAMA`."""
    derived: Derived = nothing
    """Fields that follow from several keys, or from tensors."""
    transforms: Mapping[str, str] = field(default_factory=dict)
    """Part of a parameter's name -> the transform that makes it of the file's tensor."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Modules and parameters whose tensors have other names in this kind."""
    handled: tuple[str, ...] = ()
    """Keys that `derived` reads and other kinds refuse."""

    def model_type(self, facts: Facts) -> str:
        """The family of a file of this kind."""
        return self.family if isinstance(self.family, str) else self.family(facts)

    def hf_config(self, facts: Facts) -> Fields:
        """The header, spelled as the family's config.json.

        Raises CheckpointError for a field that is missing or of the wrong kind, and ConfigError for an option not supported.
        """
        hf = facts.fields(self.fields)
        hf |= facts.token_ids() | facts.told_by_tensors() | {"rope_scaling": facts.scaling()}
        if "rope_theta" in self.fields:
            hf.setdefault("rope_theta", 10_000.0)
        if "head_dim" in self.fields:
            hf.setdefault("head_dim", facts.d_head())
        facts.refuse(self._refused(facts))
        return hf | self.derived(facts, hf)

    def weights(self, tensors: Mapping[str, TensorInfo]) -> dict[str, Weight]:
        """The weight map for a file with these tensors."""
        return weight_map(tensors, self.names, self.transforms)

    def _refused(self, facts: Facts) -> dict[str, tuple[Any, ...]]:
        read = {*self.handled, *(key.rstrip("?") for key in self.fields.values())}
        widths = {key: (facts.d_head(),) for key in WIDTHS if key not in read and facts(key) is not None}
        return {key: values for key, values in {**NO_OP, **widths}.items() if key not in read}
