"""Loading a GGUF file: its metadata becomes a family's config; the gguf package dequantises its tensors, one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import CheckpointError
from .families import FAMILIES
from .families.family import check_layers
from .fill import build_model
from .gguf_facts import Facts
from .gguf_header import Header, TensorInfo, open_gguf, read_header
from .gguf_kinds import IGNORED, kind_of
from .gguf_latent import JoinedLatents
from .gguf_rotary import llama3_parameters
from .gguf_tokenizer import tokenizer_from_gguf
from .load import with_context, with_tokenizer
from .transforms import Shape

if TYPE_CHECKING:
    from ..encoder_decoder import HookedEncoderDecoder
    from ..transformer import HookedTransformer

ROPE_FACTORS = "rope_freqs.weight"
LONG_FACTORS, SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"
BLOCK = 1 << 22
"""Numbers that are dequantised at once."""


class GGUFTensors:
    """The tensors of a GGUF file, dequantised to float32 when read. Raises CheckpointError where one lies past the file's end."""

    def __init__(self, path: Path) -> None:
        self.gguf = _gguf_package()
        self.path, self._data = path, open_gguf(path)
        self.header: Header = read_header(path, self._data)
        self._spans = {name: self._span(name, info) for name, info in self.header.tensors.items()}

    def names(self) -> Iterable[str]:
        return self.header.tensors

    def shape(self, name: str) -> Shape:
        return self.header.tensors[name].shape

    def where(self, name: str) -> str:
        return str(self.path)

    def read(self, name: str) -> Tensor:
        """One tensor, unpacked some rows at a time, so that nothing but the result is ever held whole."""
        info, (start, rows) = self.header.tensors[name], self._spans[name]
        packed = np.frombuffer(self._data, np.uint8, int(np.prod(rows)), start).reshape(-1, rows[-1])
        values = np.empty(info.shape, np.float32)
        flat = values.reshape(-1, info.shape[-1])
        step = max(1, BLOCK // info.shape[-1])
        try:
            for row in range(0, len(flat), step):
                kind = self.gguf.GGMLQuantizationType(info.kind)
                flat[row : row + step] = self.gguf.dequantize(packed[row : row + step], kind)
        except NotImplementedError:
            raise CheckpointError(
                f"tensor '{name}' in {self.path} has quantisation type {info.kind}, which cannot be dequantised."
            ) from None
        return torch.from_numpy(values)

    def _span(self, name: str, info: TensorInfo) -> tuple[int, Shape]:
        """Where a tensor begins in the file, and its shape in bytes."""
        start = self.header.data_start + info.offset
        try:
            rows = tuple(self.gguf.quants.quant_shape_to_byte_shape(info.shape, self.gguf.GGMLQuantizationType(info.kind)))
        except (ValueError, KeyError, IndexError):
            raise CheckpointError(
                f"tensor '{name}' in {self.path} has an unknown quantisation type, {info.kind}, or a shape that it forbids."
            ) from None
        if start + int(np.prod(rows, dtype=object)) > len(self._data):
            raise CheckpointError(f"{self.path} is incomplete: tensor '{name}' lies past its end.")
        return start, rows


def _gguf_package() -> Any:
    try:
        import gguf
        import gguf.quants
    except ImportError:
        raise CheckpointError("reading .gguf files needs the gguf package; run: pip install attention-atlas[gguf]") from None
    return gguf


def load_gguf(
    path: Path, name: str, n_ctx: int | None, dtype: torch.dtype, device: torch.device | str
) -> HookedTransformer | HookedEncoderDecoder:
    """A model from a .gguf file. Raises CheckpointError for a file that is damaged, split, or of an unknown kind."""
    tensors = GGUFTensors(path)
    metadata, present, where = tensors.header.metadata, tensors.header.tensors, str(path)
    kind = kind_of(metadata, where)
    facts = Facts(kind.architecture, metadata, present, where)
    for count in ("block_count", "decoder_block_count"):
        check_layers(facts(count), len(present))
    hf = kind.hf_config(facts)
    hf |= _rope_factors(tensors, facts, hf)
    tokenizer = tokenizer_from_gguf(metadata, where)
    cfg = FAMILIES[kind.model_type(facts)].to_config(hf, len(present), where, set(present)).replace(name=name)
    cfg = with_context(with_tokenizer(cfg, tokenizer), n_ctx)
    model = build_model(cfg, JoinedLatents(tensors), kind.weights(present), IGNORED, dtype, device)
    model.tokenizer = tokenizer
    return model


def _rope_factors(tensors: GGUFTensors, facts: Facts, hf: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary parameters of LongRoPE, and of Llama 3.1 and later, which a file holds as factors per frequency, not as metadata."""
    if facts.has(LONG_FACTORS) and facts.has(SHORT_FACTORS):
        long, short = tensors.read(LONG_FACTORS).tolist(), tensors.read(SHORT_FACTORS).tolist()
        parameters = {"long_factor": long, "short_factor": short, "attention_factor": facts("rope.scaling.attn_factor")}
        return {"rope_parameters": {**parameters, "rope_type": "longrope"}}
    if facts.has(ROPE_FACTORS):
        factors = tensors.read(ROPE_FACTORS).double()
        return {"rope_parameters": llama3_parameters(factors, hf.get("rope_theta", 10_000.0), facts.where)}
    return {}
