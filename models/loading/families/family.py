"""What a family of checkpoints is: two tables, one from config.json to our config, one from our parameters to its tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...config import TransformerConfig
from ...errors import ConfigError
from ..fill import Weight
from .fields import check_fields

HFConfig = Mapping[str, Any]
Rule = str | Callable[[HFConfig], Any]

EMBEDDINGS = ("embed.weight", "encoder.embed.weight")
HEADS = ("unembed.weight", "decoder.unembed.weight")
"""What the two ends are called in plain models and in encoder-decoders."""

TENSORS = "names of tensors"
"""Where rules find the names of the checkpoint's tensors, beside the fields of config.json; none are known of a config alone."""

SHARED_FIELDS = ("tie_word_embeddings", "bos_token_id", "eos_token_id", "quantization_config")
"""Fields that a multimodal config.json may state outside its text part."""


@dataclass(frozen=True)
class Family:
    """A family of checkpoints, as data."""

    name: str
    model_types: tuple[str, ...]
    """Values of `model_type` in config.json."""
    defaults: Mapping[str, Any]
    """Values of fields that config.json may leave out."""
    constants: Mapping[str, Any]
    """Fields of our config that are the same for the whole family."""
    config: Mapping[str, Rule]
    """Our field -> the field of config.json that holds it, or a function of config.json."""
    weights: Mapping[str, str | Weight]
    """Our parameter -> its tensor. "{l}" stands for the layer, "{base}" and "{head}" for the prefixes below.

    Of names parted by "|", the one that the checkpoint has is meant.
    """
    prefixes: tuple[tuple[str, str], ...] = (("", ""),)
    """Pairs ({base}, {head}) under which checkpoints of this family are found."""
    refused: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Options that we do not have -> the values at which they are off."""
    ignored: tuple[str, ...] = ()
    """Patterns of tensors that a checkpoint may hold and the model does not need."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Older names of fields of config.json -> their names."""
    nested: str | None = None
    """The field of config.json that holds the text model's own config, in multimodal checkpoints."""
    encoder_only: Family | None = None
    """The family of those checkpoints of an encoder-decoder that hold its encoder alone."""

    def holding(self, tensors: Collection[str]) -> Family:
        """This family, or its `encoder_only` for a checkpoint whose tensors are none of a decoder's."""
        has_decoder = any(name.startswith(("decoder.", "model.decoder.")) for name in tensors)
        return self if has_decoder or self.encoder_only is None else self.encoder_only

    def to_config(
        self, hf: HFConfig, n_tensors: int | None = None, where: str = "config.json", tensors: Collection[str] = ()
    ) -> TransformerConfig:
        """Our config of a config.json. Raises ConfigError naming what is missing, of the wrong kind, or unsupported.

        n_tensors: how many the checkpoint has, which bounds its layers, so that a damaged count is not built.
        where: the file that states it, for error messages.
        tensors: the names of the checkpoint's, which rules find under `TENSORS`.
        """
        hf = self._text_part(hf)
        renamed = {name: hf[older] for older, name in self.aliases.items() if older in hf}
        hf = {**self.defaults, **renamed, **hf, TENSORS: tensors}
        self._refuse_unsupported(hf, where)
        check_fields(hf, where)
        check_layers(self._value("n_layers", self.config["n_layers"], hf, where), n_tensors)
        values = {field: self._value(field, rule, hf, where) for field, rule in self.config.items()}
        return TransformerConfig(family=self.name, **self.constants, **values)

    def _text_part(self, hf: HFConfig) -> HFConfig:
        inner = hf.get(self.nested) if self.nested else None
        if not isinstance(inner, dict):
            return hf
        return {**{key: hf[key] for key in SHARED_FIELDS if key in hf}, **inner}

    def _refuse_unsupported(self, hf: HFConfig, where: str) -> None:
        for option, off in {**self.refused, "quantization_config": (None,)}.items():
            if option in hf and hf[option] not in off:
                raise ConfigError(f"{option}={hf[option]!r} in {where} is not supported for {self.name} checkpoints.")

    def _value(self, field: str, rule: Rule, hf: HFConfig, where: str) -> Any:
        if isinstance(rule, str):
            if rule not in hf:
                raise ConfigError(f"{where} lacks '{rule}', which a {self.name} checkpoint needs.")
            return hf[rule]
        try:
            return rule(hf)
        except ConfigError:
            raise
        except KeyError as error:
            raise ConfigError(f"{where} lacks {error}, which a {self.name} checkpoint needs.") from None
        except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise ConfigError(f"{where} has a field of the wrong kind, needed for {field}: {error}.") from None

    def weight_map(self, names: set[str]) -> dict[str, Weight]:
        """The weight map for a checkpoint with these tensors, its prefixes filled in."""
        base, head = self._prefix(names)
        weights = {ours: Weight(theirs) if isinstance(theirs, str) else theirs for ours, theirs in self.weights.items()}
        return {
            ours: Weight(_present(weight.name.replace("{base}", base).replace("{head}", head), names), weight.transform)
            for ours, weight in weights.items()
        }

    def _prefix(self, names: set[str]) -> tuple[str, str]:
        """The first pair of prefixes under which the embedding is found; the first of all where it is not."""
        embedding = next(self.weights[ours] for ours in EMBEDDINGS if ours in self.weights)
        templates = (embedding if isinstance(embedding, str) else embedding.name).split("|")
        found = (pair for pair in self.prefixes if any(each.replace("{base}", pair[0]) in names for each in templates))
        return next(found, self.prefixes[0])


def _present(choices: str, names: set[str]) -> str:
    """Of the names parted by "|", the first that some layer has; the first of all where none has any."""
    listed = choices.split("|")
    if len(listed) == 1:
        return choices
    patterns = [re.compile(re.sub(r"\\\{[le]\\\}", r"\\d+", re.escape(name))) for name in listed]
    return next((name for name, pattern in zip(listed, patterns, strict=True) if any(map(pattern.fullmatch, names))), listed[0])


def check_layers(n_layers: Any, n_tensors: int | None) -> None:
    """Raise ConfigError where a checkpoint states more layers than it has tensors."""
    if isinstance(n_layers, int) and n_tensors is not None and n_layers > n_tensors:
        raise ConfigError(f"the config states {n_layers} layers, but the checkpoint has only {n_tensors} tensors.")
