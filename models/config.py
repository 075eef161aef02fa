"""What a model is, as frozen plain data: sizes, block order, norms, positions, attention, MLP, tokens.

A config is validated once, when it is made, and survives a JSON round trip. It imports no torch.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ConfigError, closest

BLOCKS = ("pre", "post", "sandwich", "parallel")
NORMS = ("layer_norm", "rms_norm", "rms_norm_offset", "none")
POSITIONS = ("learned", "rotary", "none")
ROTARY_LAYOUTS = ("half", "interleaved")
ROTARY_SCALINGS = ("none", "linear", "dynamic", "llama3", "yarn")
LAYER_TYPES = ("full", "sliding")
QK_NORMS = ("none", "per_head")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")


@dataclass(frozen=True)
class RotaryConfig:
    """Rotary position embedding (Su et al. 2021, arXiv 2104.09864) and its context-length scalings.

    `factor` stretches the context: `linear` divides all frequencies (Chen et al. 2023), `dynamic` raises the base with the
    current length (NTK-aware), `llama3` stretches long wavelengths only, `yarn` blends by wavelength (Peng et al. 2023).
    """

    base: float = 10_000.0
    dim: int | None = None
    """Leading dimensions of a head that are rotated; None rotates all of them."""
    layout: str = "half"
    """"half" or "interleaved": which dimensions form a pair: (i, i + dim/2), or (2i, 2i + 1)."""
    scaling: str = "none"
    """One of `ROTARY_SCALINGS`."""
    factor: float = 1.0
    original_n_ctx: int | None = None
    """Context length, in tokens, that the unscaled model was trained on."""
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    """`yarn`: multiplies cos and sin; None means 0.1 ln(factor) + 1."""
    truncate: bool = True
    """`yarn`: round the ends of the ramp to whole dimensions."""

    def __post_init__(self) -> None:
        _check_types(type(self), vars(self), "rotary.")
        _one_of("rotary.layout", self.layout, ROTARY_LAYOUTS)
        _one_of("rotary.scaling", self.scaling, ROTARY_SCALINGS)
        for field in ("factor", "original_n_ctx", "low_freq_factor", "beta_slow", "attention_factor"):
            if (value := getattr(self, field)) is not None:
                _positive(f"rotary.{field}", value)
        for low, high in (("low_freq_factor", "high_freq_factor"), ("beta_slow", "beta_fast")):
            if getattr(self, low) >= getattr(self, high):
                raise ConfigError(f"rotary.{high} must exceed rotary.{low}={getattr(self, low)}, got {getattr(self, high)}.")
        if self.base <= 1:
            raise ConfigError(f"rotary.base must exceed 1, got {self.base}.")
        if self.dim is not None and (self.dim <= 0 or self.dim % 2):
            raise ConfigError(f"rotary.dim must be a positive even number of dimensions, got {self.dim}.")
        if self.scaling in ("dynamic", "llama3", "yarn") and self.original_n_ctx is None:
            raise ConfigError(
                f"rotary.scaling={self.scaling!r} needs rotary.original_n_ctx, the context length of the unscaled model."
            )


@dataclass(frozen=True)
class TransformerConfig:
    """Everything that decides what a `HookedTransformer` computes. All lengths are in tokens, all sizes in dimensions."""

    # sizes
    n_layers: int
    d_model: int
    n_heads: int
    d_head: int
    d_vocab: int
    n_ctx: int
    n_kv_heads: int = 0
    """Key/value heads; 0 means one per query head. Query head h reads KV head h // (n_heads / n_kv_heads)."""
    d_mlp: int = 0
    """Hidden width of the MLP; 0 makes the model attention-only."""
    d_vocab_out: int = 0
    """Width of the logits; 0 means d_vocab."""

    # block order and norms
    block: str = "pre"
    """One of `BLOCKS`; each order is drawn in `models.block`."""
    norm: str = "layer_norm"
    """One of `NORMS`. `rms_norm_offset` multiplies by (1 + w), as Gemma does."""
    norm_eps: float = 1e-5
    final_norm: bool = True

    # positions
    positions: str = "learned"
    rotary: RotaryConfig | None = None
    rotary_sliding: RotaryConfig | None = None
    """Rotary settings of the sliding-window layers, where they differ from `rotary`."""

    # attention
    causal: bool = True
    window: int | None = None
    """Keys a query of a sliding layer sees, itself included; bidirectional models see window - 1 to either side."""
    layer_types: tuple[str, ...] = ()
    """"full" or "sliding" per layer; empty means all sliding if there is a window, else all full."""
    attn_scale: float = 0.0
    """Multiplies q.k; 0 means 1 / sqrt(d_head)."""
    qk_norm: str = "none"
    """Normalise each head's queries and keys, before rotation, with the norm of the model."""
    attn_softcap: float | None = None
    logit_softcap: float | None = None
    qkv_bias: bool = False
    out_bias: bool = False

    # MLP
    activation: str = "gelu_tanh"
    gated_mlp: bool = False
    mlp_bias: bool = False

    # embedding and unembedding
    embed_scale: float = 1.0
    tie_embeddings: bool = False
    unembed_bias: bool = False

    # tokens and provenance
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    default_prepend_bos: bool = False
    """Whether text is tokenised with a leading BOS when a call does not say; taken from the model's own tokeniser."""
    name: str = ""
    family: str = ""

    def __post_init__(self) -> None:
        _check_types(type(self), vars(self))
        for field, (unset, derive) in _DERIVED.items():
            if getattr(self, field) == unset:
                object.__setattr__(self, field, derive(self))
        self._check_choices()
        self._check_sizes()
        self._check_attention()

    def _check_choices(self) -> None:
        _one_of("block", self.block, BLOCKS)
        _one_of("norm", self.norm, NORMS)
        _one_of("positions", self.positions, POSITIONS)
        _one_of("qk_norm", self.qk_norm, QK_NORMS)
        _one_of("activation", self.activation, ACTIVATIONS)
        for layer, kind in enumerate(self.layer_types):
            _one_of(f"layer_types[{layer}]", kind, LAYER_TYPES)

    def _check_sizes(self) -> None:
        for field in ("n_layers", "d_model", "n_heads", "d_head", "d_vocab", "n_ctx", "n_kv_heads", "d_vocab_out"):
            if (value := getattr(self, field)) <= 0:
                raise ConfigError(f"{field} must be a positive whole number, got {value!r}.")
        if self.d_mlp < 0:
            raise ConfigError(f"d_mlp must be a whole number, 0 for an attention-only model, got {self.d_mlp!r}.")
        if self.n_heads % self.n_kv_heads:
            raise ConfigError(f"n_heads must be a multiple of n_kv_heads, got {self.n_heads} and {self.n_kv_heads}.")
        if len(self.layer_types) != self.n_layers:
            raise ConfigError(f"layer_types must name all {self.n_layers} layers, got {len(self.layer_types)}.")
        _positive("norm_eps", self.norm_eps)

    def _check_attention(self) -> None:
        if self.window is not None and self.window <= 0:
            raise ConfigError(f"window must be a positive number of keys, got {self.window}.")
        if "sliding" in self.layer_types and self.window is None:
            raise ConfigError("layer_types has sliding layers, so window must say how many keys they see.")
        for field in ("attn_softcap", "logit_softcap"):
            if (value := getattr(self, field)) is not None:
                _positive(field, value)
        for rotary in (self.rotary, self.rotary_sliding):
            dim = self.d_head if rotary is None or rotary.dim is None else rotary.dim
            if rotary is not None and (dim > self.d_head or dim % 2):
                raise ConfigError(f"rotary.dim must be even and at most d_head={self.d_head}, got {dim}.")
            if rotary is not None and rotary.scaling == "dynamic" and dim == 2:
                raise ConfigError("rotary.scaling='dynamic' needs more than 2 rotated dimensions, got 2.")
        if self.qk_norm != "none" and self.norm == "none":
            raise ConfigError('qk_norm needs a norm, got norm="none".')

    @property
    def group_size(self) -> int:
        """Query heads that share one key/value head."""
        return self.n_heads // self.n_kv_heads

    @property
    def attn_only(self) -> bool:
        return self.d_mlp == 0

    def rotary_for(self, layer: int) -> RotaryConfig | None:
        """Rotary settings of one layer; None where the model has no rotary positions."""
        if self.positions != "rotary":
            return None
        return self.rotary_sliding if self.layer_types[layer] == "sliding" else self.rotary

    def replace(self, **changes: Any) -> TransformerConfig:
        """A copy with some fields changed, validated again. Fields that had their derived value follow the change."""
        follow = {field: unset for field, (unset, derive) in _DERIVED.items() if getattr(self, field) == derive(self)}
        return dataclasses.replace(self, **(follow | changes))

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> TransformerConfig:
        """Build from `to_dict` output. Raises ConfigError on an unknown or missing field, with near matches."""
        if not isinstance(data, dict):
            raise ConfigError(f"config must be an object of fields and values, got {type(data).__name__}.")
        data = dict(data)
        for key in ("rotary", "rotary_sliding"):
            if isinstance(data.get(key), dict):
                data[key] = RotaryConfig(**_known_fields(RotaryConfig, data[key], f"{key}."))
        for key in ("layer_types", "eos_token_ids"):
            if isinstance(data.get(key), list):
                data[key] = tuple(data[key])
        fields = _known_fields(cls, data)
        required = {f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING}
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


_DERIVED: dict[str, tuple[Any, Callable[[TransformerConfig], Any]]] = {
    "n_kv_heads": (0, lambda cfg: cfg.n_heads),
    "d_vocab_out": (0, lambda cfg: cfg.d_vocab),
    "attn_scale": (0.0, lambda cfg: 1 / math.sqrt(max(cfg.d_head, 1))),
    "layer_types": ((), lambda cfg: ("sliding" if cfg.window else "full",) * max(cfg.n_layers, 0)),
    "rotary": (None, lambda cfg: RotaryConfig() if cfg.positions == "rotary" else None),
    "rotary_sliding": (None, lambda cfg: cfg.rotary),
}
"""Fields that follow from others unless they are given: the value that stands for "not given", and the rule."""


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**256


def _number(value: Any) -> bool:
    return _whole(value) or (isinstance(value, float) and math.isfinite(value))


_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("a whole number", _whole),
    "int | None": ("a whole number or None", lambda value: value is None or _whole(value)),
    "float": ("a finite number", _number),
    "float | None": ("a finite number or None", lambda value: value is None or _number(value)),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "str": ("text", lambda value: isinstance(value, str)),
    "tuple[str, ...]": ("a tuple of text", lambda value: isinstance(value, tuple) and all(isinstance(v, str) for v in value)),
    "tuple[int, ...]": ("a tuple of whole numbers", lambda value: isinstance(value, tuple) and all(map(_whole, value))),
    "RotaryConfig | None": ("a RotaryConfig or None", lambda value: value is None or isinstance(value, RotaryConfig)),
}
"""By annotation of a field: what it must be, in words, and the test."""


def _check_types(cls: Any, values: dict[str, Any], prefix: str = "") -> None:
    for field in dataclasses.fields(cls):
        words, fits = _TYPES[str(field.type)]
        if field.name in values and not fits(value := values[field.name]):
            raise ConfigError(f"{prefix}{field.name} must be {words}, got {value!r}.")


def _known_fields(cls: type, data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    known = [field.name for field in dataclasses.fields(cls)]
    for key in data:
        if key not in known:
            raise ConfigError(f"config has an unknown field {prefix}{key!r}{closest(key, known)}.")
    _check_types(cls, data, prefix)
    # JSON writes a whole number where Python wants a float.
    floats = {field.name for field in dataclasses.fields(cls) if str(field.type).startswith("float")}
    return {key: float(value) if key in floats and value is not None else value for key, value in data.items()}


def _one_of(field: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{field} must be one of {', '.join(choices)}; got {value!r}{closest(str(value), choices)}.")


def _positive(field: str, value: int | float) -> None:
    if not value > 0:
        raise ConfigError(f"{field} must be positive, got {value!r}.")
