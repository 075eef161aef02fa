"""Our own format: config.json with `"format": "attention-atlas/1"`, model.safetensors under our names, tokenizer.json."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..config import TransformerConfig
from ..errors import CheckpointError, ConfigError
from .families.family import check_layers
from .families.fields import FLAG
from .fill import build_model
from .json_file import write_atomically, write_json
from .paths import make_folder, user_path
from .safetensors_folder import SINGLE, SafetensorsFolder
from .sharing import Apart
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from ..transformer import HookedTransformer

FORMAT = "attention-atlas/1"
OWN_FIELDS = ("format", "tokenizer")
"""Fields of config.json beside those of the model's config; "tokenizer" is whether a tokeniser belongs to the model."""


def save_model(model: HookedTransformer, folder: str | PathLike[str]) -> None:
    """Write a model to a folder, which is made if need be. Each file is replaced as a whole, config.json last.

    Other files of the folder stay: those of a sharded checkpoint, or of a tokeniser that is not this model's, have no effect
    beside ours. Tied embeddings are stored once. Raises CheckpointError where the folder is a file or cannot be written.
    """
    from safetensors.torch import save_file

    path = user_path(folder, "the folder to save to")
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"cannot save to {path}: it is a file, wanted a folder.")
    make_folder(path)
    apart, parameters = Apart(), model.named_parameters(remove_duplicate=model.cfg.tie_embeddings)
    tensors = {name: apart(parameter.detach().cpu().contiguous()) for name, parameter in parameters}
    write_atomically(path / SINGLE, lambda temporary: save_file(tensors, temporary, metadata={"format": "pt"}))
    if model.tokenizer is not None:
        model.tokenizer.save(path)
    write_json(path / "config.json", {"format": FORMAT, "tokenizer": model.tokenizer is not None, **model.cfg.to_dict()})


def load_own_format(
    folder: Path, config: dict[str, Any], n_ctx: int | None, dtype: torch.dtype, device: torch.device | str
) -> HookedTransformer:
    """A model that `save_model` wrote. Raises CheckpointError for another format or version, ConfigError for a bad config."""
    from .load import with_context

    where = str(folder / "config.json")
    if config["format"] != FORMAT:
        raise CheckpointError(f"{where} has format {config['format']!r}, wanted {FORMAT!r}.")
    FLAG.check("tokenizer", has_tokenizer := config.get("tokenizer", True), where)
    source = SafetensorsFolder(folder)
    check_layers(config.get("n_layers"), len(set(source.names())))
    try:
        cfg = TransformerConfig.from_dict({key: value for key, value in config.items() if key not in OWN_FIELDS})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    cfg = with_context(cfg, n_ctx)
    model = build_model(cfg, source, None, (), dtype, device)
    model.tokenizer = Tokenizer.from_folder(folder) if has_tokenizer else None
    return model
