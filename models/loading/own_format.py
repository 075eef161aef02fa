"""Our own format: config.json with `"format": "attention-atlas/1"`, model.safetensors under our names, tokenizer.json."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..config import TransformerConfig
from ..errors import CheckpointError, ConfigError
from .families.family import check_layers
from .fill import build_model
from .json_file import write_atomically, write_json
from .safetensors_folder import SINGLE, SafetensorsFolder
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from ..transformer import HookedTransformer

FORMAT = "attention-atlas/1"


def save_model(model: HookedTransformer, folder: str | PathLike[str]) -> None:
    """Write a model to a folder, which is made if need be. Each file is replaced as a whole, config.json last.

    Tied embeddings are stored once. Raises CheckpointError where the folder is a file.
    """
    from safetensors.torch import save_file

    path = Path(folder).expanduser()
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"cannot save to {path}: it is a file, wanted a folder.")
    path.mkdir(parents=True, exist_ok=True)
    tensors = {name: parameter.detach().cpu().contiguous() for name, parameter in model.named_parameters()}
    write_atomically(path / SINGLE, lambda temporary: save_file(tensors, temporary, metadata={"format": "pt"}))
    if model.tokenizer is not None:
        model.tokenizer.save(path)
    write_json(path / "config.json", {"format": FORMAT, **model.cfg.to_dict()})


def load_own_format(
    folder: Path, config: dict[str, Any], n_ctx: int | None, dtype: torch.dtype, device: torch.device | str
) -> HookedTransformer:
    """A model that `save_model` wrote. Raises CheckpointError for another format or version, ConfigError for a bad config."""
    from .load import with_context

    if config["format"] != FORMAT:
        raise CheckpointError(f"{folder / 'config.json'} has format {config['format']!r}, wanted {FORMAT!r}.")
    source = SafetensorsFolder(folder)
    check_layers(config.get("n_layers"), len(set(source.names())))
    try:
        cfg = TransformerConfig.from_dict({key: value for key, value in config.items() if key != "format"})
    except TypeError as error:
        raise ConfigError(f"{folder / 'config.json'} has a field of the wrong kind: {error}.") from None
    cfg = with_context(cfg, n_ctx)
    model = build_model(cfg, source, None, (), dtype, device)
    model.tokenizer = Tokenizer.from_folder(folder)
    return model
