"""DeBERTa v1 (He et al. 2021, arXiv 2006.03654) and v2 and v3 (2111.09543).

BERT with disentangled attention. v1 fuses query, key and value weights and gives keys no bias; v2 buckets distances
logarithmically and may use a layer's own query and key weights for positions too. The convolution that the largest v2 models have
after their first layer is not supported.
"""

from __future__ import annotations

from typing import Any

from ...config import RelativeConfig
from ..fill import Weight
from .bert import CONFIG, CONSTANTS, DEFAULTS, EMBEDDINGS, IGNORED_PREDICTIONS, LAYER, REST_OF_LAYER, linear, mlm_if
from .family import Family, HFConfig, Rule

LATER_HEAD = "lm_predictions.lm_head"
SELF = LAYER + "attention.self."


def _types(hf: HFConfig) -> tuple[str, ...]:
    """`pos_att_type`, a list or text such as "c2p|p2c", in the order in which scores are added."""
    stated = hf["pos_att_type"] or ()
    listed = stated.lower().split("|") if isinstance(stated, str) else stated
    return tuple(sorted(each.strip() for each in listed))


def _max_distance(hf: HFConfig) -> int:
    stated = hf["max_relative_positions"]
    return stated if stated > 0 else hf["max_position_embeddings"]


def _relative(hf: HFConfig, **options: Any) -> RelativeConfig:
    terms = _types(hf) if hf["relative_attention"] else ()
    return RelativeConfig(terms=terms, max_distance=_max_distance(hf), **options)


def _v1_relative(hf: HFConfig) -> RelativeConfig:
    return _relative(hf, n_buckets=0, key_bias=False)


def _v2_relative(hf: HFConfig) -> RelativeConfig:
    norms = [part.strip() for part in hf["norm_rel_ebd"].lower().split("|")]
    return _relative(hf, n_buckets=max(hf["position_buckets"], 0), share_weights=hf["share_att_key"], norm="layer_norm" in norms)


def _attn_scale(hf: HFConfig) -> float:
    d_head = hf["hidden_size"] // hf["num_attention_heads"]
    return (d_head * (1 + len(_types(hf)))) ** -0.5


DEBERTA_CONFIG: dict[str, Rule] = {
    **CONFIG,
    "positions": lambda hf: "learned" if hf["position_biased_input"] else "none",
    "attn_scale": _attn_scale,
    "head": mlm_if("cls.predictions.transform.dense.weight", f"{LATER_HEAD}.dense.weight"),
    # The later head is made of the embeddings whatever the file says.
    "tie_embeddings": lambda hf: hf["tie_word_embeddings"] or not hf["legacy"],
}

DEBERTA_CONSTANTS = {ours: value for ours, value in CONSTANTS.items() if ours != "positions"}

DEBERTA_DEFAULTS = {
    **DEFAULTS,
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
    "relative_attention": False,
    "max_relative_positions": -1,
    "position_biased_input": True,
    "pos_att_type": None,
    "legacy": True,
}

REFUSED = {"conv_kernel_size": (0, None)}

HEAD: dict[str, str | Weight] = {
    **{
        ours: f"cls.predictions.transform.{part}|{LATER_HEAD}.{part}"
        for ours, part in (
            ("head_dense.weight", "dense.weight"),
            ("head_dense.bias", "dense.bias"),
            ("head_norm.weight", "LayerNorm.weight"),
            ("head_norm.bias", "LayerNorm.bias"),
        )
    },
    "unembed.weight": "cls.predictions.decoder.weight",
    "unembed.bias": f"cls.predictions.decoder.bias|cls.predictions.bias|{LATER_HEAD}.bias",
}

SHARED: dict[str, str | Weight] = {
    **EMBEDDINGS,
    **REST_OF_LAYER,
    "blocks.{l}.attn.positions.table": "{base}encoder.rel_embeddings.weight",
    **HEAD,
}

IGNORED = (
    *IGNORED_PREDICTIONS,
    r"^mask_predictions\.",
    r"^(cls|lm_predictions)\.",
    # Files of models without absolute positions may hold their table all the same.
    r"(^|\.)embeddings\.position_embeddings\.weight$",
)

DEBERTA = Family(
    name="deberta",
    model_types=("deberta",),
    defaults={**DEBERTA_DEFAULTS, "talking_head": False},
    constants=DEBERTA_CONSTANTS,
    config={
        **DEBERTA_CONFIG,
        "relative": _v1_relative,
        "mixer": lambda hf: "talking_disentangled" if hf["talking_head"] else "disentangled",
    },
    weights={
        **SHARED,
        "blocks.{l}.attn.q.weight": Weight(SELF + "in_proj.weight", "heads_q"),
        "blocks.{l}.attn.k.weight": Weight(SELF + "in_proj.weight", "heads_k"),
        "blocks.{l}.attn.v.weight": Weight(SELF + "in_proj.weight", "heads_v"),
        "blocks.{l}.attn.mix_scores": SELF + "head_logits_proj.weight",
        "blocks.{l}.attn.normaliser.weight": SELF + "head_weights_proj.weight",
        "blocks.{l}.attn.q.bias": SELF + "q_bias",
        "blocks.{l}.attn.v.bias": SELF + "v_bias",
        "blocks.{l}.attn.positions.k.weight": SELF + "pos_proj.weight",
        **linear("blocks.{l}.attn.positions.q", SELF + "pos_q_proj"),
    },
    prefixes=(("deberta.", ""), ("", "")),
    refused=REFUSED,
    ignored=IGNORED,
)

DEBERTA_V2 = Family(
    name="deberta-v2",
    model_types=("deberta-v2",),
    defaults={**DEBERTA_DEFAULTS, "position_buckets": -1, "share_att_key": False, "norm_rel_ebd": "none"},
    constants={**DEBERTA_CONSTANTS, "mixer": "disentangled"},
    config={**DEBERTA_CONFIG, "relative": _v2_relative},
    weights={
        **SHARED,
        **linear("blocks.{l}.attn.q", SELF + "query_proj"),
        **linear("blocks.{l}.attn.k", SELF + "key_proj"),
        **linear("blocks.{l}.attn.v", SELF + "value_proj"),
        **linear("blocks.{l}.attn.positions.k", SELF + "pos_key_proj"),
        **linear("blocks.{l}.attn.positions.q", SELF + "pos_query_proj"),
        "blocks.{l}.attn.positions.norm_weight": "{base}encoder.LayerNorm.weight",
        "blocks.{l}.attn.positions.norm_bias": "{base}encoder.LayerNorm.bias",
    },
    prefixes=(("deberta.", ""), ("", "")),
    refused=REFUSED,
    ignored=IGNORED,
)
