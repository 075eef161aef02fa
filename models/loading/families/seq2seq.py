"""What families of encoder-decoders share: one set of rules for the config of each half, one map for the weights of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...config import TransformerConfig
from .family import HFConfig, Rule


def encoder_rule(constants: Mapping[str, Any], rules: Mapping[str, Rule]) -> Rule:
    """The rule for `encoder`: a bidirectional stack without a head."""

    def rule(hf: HFConfig) -> TransformerConfig:
        values = {field: hf[each] if isinstance(each, str) else each(hf) for field, each in rules.items()}
        return TransformerConfig(causal=False, head="none", **constants, **values)

    return rule


def for_both(weights: Mapping[str, str]) -> dict[str, str]:
    """A map in which "{stack}" stands for "encoder" and "decoder"."""
    return {
        ours.replace("{stack}", stack): theirs.replace("{stack}", stack)
        for ours, theirs in weights.items()
        for stack in ("encoder", "decoder")
    }
