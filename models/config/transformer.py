"""`TransformerConfig`: sizes, block order, norms, positions, attention, MLP, head and tokens of a model."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from .alibi import AlibiConfig
from .altup import AltUpConfig, check_altup
from .checks import check_types, known_fields, one_of, positive
from .experts import ExpertsConfig
from .latent import LatentConfig
from .linear import LinearConfig
from .names import NAMES
from .pairing import check_kv_sharing, check_pairing
from .relative import RelativeConfig
from .rotary import RotaryConfig
from .sparse import SparseConfig
from .temperature import TemperatureConfig

PARTS: dict[str, type] = {
    "rotary": RotaryConfig,
    "alibi": AlibiConfig,
    "altup": AltUpConfig,
    "temperature": TemperatureConfig,
    "latent": LatentConfig,
    "linear": LinearConfig,
    "relative": RelativeConfig,
    "sparse": SparseConfig,
    "experts": ExpertsConfig,
}
"""Fields that hold a config of their own."""


@dataclass(frozen=True)
class TransformerConfig:
    """Everything that decides what a model computes. All lengths are in tokens, all sizes in dimensions.

    Fields hold for every layer, but for those that `by_type` changes in the layers of a type; `for_layer` gives the result.
    """

    # sizes
    n_layers: int
    d_model: int
    n_heads: int
    d_head: int
    d_vocab: int
    n_ctx: int
    n_kv_heads: int = 0
    """Key/value heads; 0 means one per query head. Query head h reads KV head h // (n_heads / n_kv_heads)."""
    d_value: int = 0
    """Width of a head's value; 0 means d_head, the width of its query and key."""
    d_mlp: int = 0
    """Hidden width of the MLP; 0 makes the model attention-only."""
    d_vocab_out: int = 0
    """Width of the logits; 0 means d_vocab."""

    # layers of several types
    layer_types: tuple[str, ...] = ()
    """A name for the kind of each layer. One that is also a mask ("full", "sliding") has that mask. Empty: all alike."""
    by_type: dict[str, dict[str, Any]] = field(default_factory=dict, hash=False)
    """Fields that differ in the layers of a type, as in {"sliding": {"rotary": RotaryConfig(base=1e4)}}."""

    # block order and norms
    block: str = "pre"
    """How attention and MLP read and write the residual stream; each order is drawn in `models.block`."""
    norm: str = "layer_norm"
    """"layer_norm", "rms_norm", "rms_norm_offset" (multiplies by 1 + w, as Gemma does) or "none"."""
    norm_eps: float = 1e-5
    norm_bias: bool = True
    """Whether a LayerNorm adds a bias."""
    attn_norm: bool = True
    """Whether a norm comes before attention where the block order has one; ModernBERT's first layer has none."""
    final_norm: bool = True
    residual_scale: float = 1.0
    """Multiplies what attention and MLP write."""
    attn_stream_scale: float = 1.0
    """Multiplies the stream before attention's output is added, in "normed_stream" blocks; mlp_stream_scale likewise."""
    mlp_stream_scale: float = 1.0

    d_layer_embed: int = 0
    """Width of token embeddings that each layer has of its own, in "sandwich_scaled" and "altup" blocks; 0 means none."""
    d_layer_vocab: int = 0
    """Rows of the table of these; 0 means d_vocab. Tokens past its end have the first."""
    altup: AltUpConfig | None = None

    # embedding and positions
    embed_scale: float = 1.0
    embed_norm: bool = False
    """A norm over the sum of the embeddings."""
    n_token_types: int = 0
    """Rows of a table of token-type (segment) embeddings; 0 means none."""
    positions: str = "learned"
    position_offset: int = 0
    """Rows of the position table before that of position 0."""
    sinusoidal_layout: str = "interleaved"
    """"interleaved": sine and cosine take turns; "half": all sines come first."""
    rotary: RotaryConfig | None = None

    # attention
    mixer: str = "attention"
    """What carries information between positions: a name in `models.attention.mixers.MIXERS`."""
    causal: bool = True
    mask: str = "full"
    """Which keys a query sees, in layers whose type is not itself the name of a mask (`models.attention.masks.MASKS`)."""
    window: int | None = None
    """Keys a query of a sliding layer sees, itself included; bidirectional models see window - 1 to either side."""
    chunk: int | None = None
    """Length of the chunks of a chunked mask: a query sees keys of its own chunk only."""
    attn_scale: float = 0.0
    """Multiplies q.k; 0 means 1 / sqrt(d_head)."""
    qk_norm: str = "none"
    """Norm of queries and keys: "per_head" (one gain for all heads), "own_per_head" (a gain each), "full_width" or "l2"."""
    qk_norm_kind: str = ""
    """Kind of that norm; empty means that of the model."""
    qk_norm_place: str = "before"
    """"before" or "after" rotation."""
    v_norm: bool = False
    """An RMSNorm without gain over each head's values."""
    keys_as_values: bool = False
    """Values are the products of the key weights, before their norm and rotation."""
    kv_from: int = -1
    """The layer whose keys and values a "kv_reader" uses, itself a "kv_store"; -1 for layers with their own."""
    temperature: TemperatureConfig | None = None
    score_terms: tuple[str, ...] = ()
    """Added to the scaled scores, in this order: names in `models.attention.score_terms.SCORE_TERMS`."""
    alibi: AlibiConfig | None = None
    relative: RelativeConfig | None = None
    attn_softcap: float | None = None
    normaliser: str = "softmax"
    """What turns scores into a pattern: a name in `models.attention.normalisers.NORMALISERS`."""
    out_steps: tuple[str, ...] = ()
    """What happens to pattern @ v before the output weights: names in `models.attention.out_steps.OUT_STEPS`."""
    qkv_bias: bool = False
    out_bias: bool = False
    latent: LatentConfig | None = None
    linear: LinearConfig | None = None
    sparse: SparseConfig | None = None
    cross_attention: bool = False
    """Whether blocks also attend to the states of an encoder."""

    # MLP
    mlp: str = ""
    """A name in `models.mlps.MLPS`; empty means "experts", "gated" or "plain", as the fields below say."""
    activation: str = "gelu_tanh"
    gated_mlp: bool = False
    mlp_bias: bool = False
    mlp_sparsity: float = 0.0
    """The quantile below which a "sparse_gated" MLP cuts its gates."""
    experts: ExpertsConfig | None = None

    # head
    head: str = "lm"
    """"lm": logits straight from the final norm; "mlm": through a dense layer, activation and norm; "none": no logits."""
    head_activation: str = ""
    head_bias: bool = True
    """Bias of the dense layer of an "mlm" head, whose activation is that of the MLP unless named."""
    tie_embeddings: bool = False
    unembed_bias: bool = False
    logit_scale: float = 1.0
    logit_softcap: float | None = None

    # encoder-decoders
    encoder: TransformerConfig | None = None
    """The encoder of an encoder-decoder, whose decoder this config then is."""
    share_embeddings: bool = False
    """Encoder and decoder have one table of token embeddings."""
    start_token_id: int | None = None
    """The token that every target begins with."""

    # tokens, variants of users, provenance
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    default_prepend_bos: bool = False
    """Whether text is tokenised with a leading BOS when a call does not say; taken from the model's own tokeniser."""
    extra: dict[str, Any] = field(default_factory=dict, hash=False)
    """Options of registered variants that no other field holds: numbers, text and flags by name."""
    name: str = ""
    family: str = ""

    def __post_init__(self) -> None:
        check_types(type(self), vars(self))
        for each, (unset, derive) in _DERIVED.items():
            if getattr(self, each) == unset:
                object.__setattr__(self, each, derive(self))
        self._check_choices()
        self._check_sizes()
        self._check_attention()
        self._check_types_of_layers()
        check_pairing(self)
        check_kv_sharing(self)
        check_altup(self)

    def _check_choices(self) -> None:
        for each, choices in NAMES.items():
            value = getattr(self, each)
            for name in value if isinstance(value, tuple) else (value,):
                one_of(each, name, choices)
        one_of("qk_norm_kind", self.qk_norm_kind, NAMES["norm"])
        one_of("head_activation", self.head_activation, NAMES["activation"])

    def _check_sizes(self) -> None:
        for each in ("n_layers", "d_model", "n_heads", "d_head", "d_vocab", "n_ctx", "n_kv_heads", "d_value", "d_vocab_out"):
            if (value := getattr(self, each)) <= 0:
                raise ConfigError(f"{each} must be a positive whole number, got {value!r}.")
        for each in ("d_mlp", "n_token_types", "position_offset", "d_layer_embed", "d_layer_vocab"):
            if (value := getattr(self, each)) < 0:
                raise ConfigError(f"{each} must be a whole number of 0 or more, got {value!r}.")
        if self.n_heads % self.n_kv_heads:
            raise ConfigError(f"n_heads must be a multiple of n_kv_heads, got {self.n_heads} and {self.n_kv_heads}.")
        if len(self.layer_types) != self.n_layers:
            raise ConfigError(f"layer_types must name all {self.n_layers} layers, got {len(self.layer_types)}.")
        positive("norm_eps", self.norm_eps)
        if not (0 < self.mlp_sparsity < 1 if self.mlp == "sparse_gated" else self.mlp_sparsity == 0):
            raise ConfigError(
                "mlp_sparsity lies between 0 and 1 where mlp='sparse_gated', and is 0 elsewhere; "
                f"got {self.mlp_sparsity} and {self.mlp!r}."
            )

    def _check_attention(self) -> None:
        if self.block != "normed_stream" and (self.attn_stream_scale, self.mlp_stream_scale) != (1.0, 1.0):
            raise ConfigError(
                f"attn_stream_scale and mlp_stream_scale need block='normed_stream' where they are not 1, got {self.block!r}."
            )
        for each in ("window", "chunk"):
            if (value := getattr(self, each)) is not None and value <= 0:
                raise ConfigError(f"{each} must be a positive number of keys, got {value}.")
        for each in ("sliding", "sink_window"):
            if each in (*self.layer_types, self.mask) and self.window is None:
                raise ConfigError(f"layer_types has {each} layers, so window must say how many keys they see.")
        if "chunked" in (*self.layer_types, self.mask) and self.chunk is None:
            raise ConfigError("layer_types has chunked layers, so chunk must say how long chunks are.")
        for each in ("attn_softcap", "logit_softcap"):
            if (value := getattr(self, each)) is not None:
                positive(each, value)
        positive("attn_scale", self.attn_scale)
        rotary = self.rotary
        dim = self.d_rotary
        if rotary is not None and (dim > self.d_head or dim % 2):
            raise ConfigError(f"rotary.dim must be even and at most d_head={self.d_head}, got {dim}.")
        if rotary is not None and rotary.scaling == "dynamic" and dim == 2:
            raise ConfigError("rotary.scaling='dynamic' needs more than 2 rotated dimensions, got 2.")
        for each in ("short_factor", "long_factor"):
            if rotary is not None and dim and rotary.scaling == "longrope" and len(divisors := getattr(rotary, each)) != dim // 2:
                raise ConfigError(f"rotary.{each} must hold a divisor for each of {dim // 2} pairs, got {len(divisors)}.")
        if self.qk_norm not in ("none", "l2") and self.qk_norm_kind == "none":
            raise ConfigError('qk_norm needs a norm, got norm="none".')

    def _check_types_of_layers(self) -> None:
        for kind, changes in self.by_type.items():
            if kind not in self.layer_types:
                raise ConfigError(
                    f"by_type names the layer type {kind!r}, which no layer has; layer_types is {self.layer_types}."
                )
            known_fields(type(self), changes, f"by_type[{kind!r}].")
        for kind in set(self.layer_types) if self.by_type else ():
            self.for_layer(self.layer_types.index(kind))

    def for_layer(self, layer: int) -> TransformerConfig:
        """The config of one layer: `by_type` applied, and the mask that its type names."""
        kind = self.layer_types[layer]
        changes = dict(self.by_type.get(kind, {}))
        if kind in NAMES["mask"]:
            changes.setdefault("mask", kind)
        if not changes and not self.by_type:
            return self
        return self.replace(layer_types=(kind,) * self.n_layers, by_type={}, **changes)

    @property
    def group_size(self) -> int:
        """Query heads that share one key/value head."""
        return self.n_heads // self.n_kv_heads

    @property
    def attn_only(self) -> bool:
        return self.d_mlp == 0

    @property
    def d_rotary(self) -> int:
        """Dimensions of a head that are rotated; 0 where the layer has no rotary positions."""
        if self.rotary is None or self.positions != "rotary":
            return 0
        return self.d_head if self.rotary.dim is None else self.rotary.dim

    def rotary_for(self, layer: int) -> RotaryConfig | None:
        """Rotary settings of one layer; None where it has no rotary positions."""
        cfg = self.for_layer(layer)
        return cfg.rotary if cfg.positions == "rotary" else None

    @property
    def qk_steps(self) -> tuple[str, ...]:
        """What happens to queries and keys before they meet, in order: names in `models.attention.qk_steps.QK_STEPS`."""
        norm = ("qk_norm",) if self.qk_norm != "none" else ()
        rotary = ("rotary",) if self.d_rotary else ()
        temperature = ("temperature",) if self.temperature else ()
        features = ("features",) if self.normaliser == "kernel_sum" else ()
        return (norm + rotary if self.qk_norm_place == "before" else rotary + norm) + temperature + features

    def replace(self, **changes: Any) -> TransformerConfig:
        """A copy with some fields changed, validated again. Fields that had their derived value follow the change."""
        follow = {each: unset for each, (unset, derive) in _DERIVED.items() if getattr(self, each) == derive(self)}
        return dataclasses.replace(self, **(follow | changes))

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> TransformerConfig:
        """Build from `to_dict` output. Raises ConfigError on an unknown or missing field, with near matches."""
        if not isinstance(data, dict):
            raise ConfigError(f"config must be an object of fields and values, got {type(data).__name__}.")
        data = _with_parts(data)
        if isinstance(data.get("encoder"), dict):
            data["encoder"] = cls.from_dict(data["encoder"])
        if isinstance(data.get("by_type"), dict):
            data["by_type"] = {kind: _with_parts(changes) for kind, changes in data["by_type"].items()}
        fields = known_fields(cls, data)
        if "by_type" in fields:
            fields["by_type"] = {
                kind: known_fields(cls, changes, f"by_type[{kind!r}].") for kind, changes in fields["by_type"].items()
            }
        required = {f.name for f in dataclasses.fields(cls) if _is_required(f)}
        if missing := sorted(required - set(fields)):
            raise ConfigError(f"config lacks {', '.join(missing)}.")
        return cls(**fields)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_json(cls, source: str | Path) -> TransformerConfig:
        """Read JSON text, or the file at a Path."""
        text = source.read_text() if isinstance(source, Path) else source
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"config is not valid JSON: {error}.") from None
        return cls.from_dict(data)


def _is_required(each: dataclasses.Field[Any]) -> bool:
    return each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING


def _with_parts(data: Any) -> Any:
    """`data` with the dicts of nested configs made into them."""
    if not isinstance(data, dict):
        return data
    nested = {key: cls for key, cls in PARTS.items() if isinstance(data.get(key), dict)}
    return data | {key: cls(**known_fields(cls, data[key], f"{key}.")) for key, cls in nested.items()}


def _mlp(cfg: TransformerConfig) -> str:
    return "experts" if cfg.experts is not None else "gated" if cfg.gated_mlp else "plain"


def _layer_types(cfg: TransformerConfig) -> tuple[str, ...]:
    return ("sliding" if cfg.window and cfg.mask == "full" else cfg.mask,) * max(cfg.n_layers, 0)


_DERIVED: dict[str, tuple[Any, Callable[[TransformerConfig], Any]]] = {
    "n_kv_heads": (0, lambda cfg: cfg.n_heads),
    "d_value": (0, lambda cfg: cfg.d_head),
    "d_vocab_out": (0, lambda cfg: cfg.d_vocab),
    "attn_scale": (0.0, lambda cfg: 1 / math.sqrt(max(cfg.d_head, 1))),
    "layer_types": ((), _layer_types),
    "rotary": (None, lambda cfg: RotaryConfig() if cfg.positions == "rotary" else None),
    "qk_norm_kind": ("", lambda cfg: cfg.norm),
    "mlp": ("", _mlp),
    "head_activation": ("", lambda cfg: cfg.activation),
}
"""Fields that follow from others unless they are given: the value that stands for "not given", and the rule."""
