"""Our own format: config.json with `"format": "attention-atlas/1"`, model.safetensors under our names, tokenizer.json."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..config import TransformerConfig
from ..errors import CheckpointError, ConfigError
from ..small_tokenizers import SmallTokenizer, small_tokenizer
from .families.family import check_layers
from .families.fields import FLAG
from .fill import build_model, empty_model
from .json_file import write_atomically, write_json
from .paths import make_folder, user_path
from .safetensors_folder import SINGLE, SafetensorsFolder
from .sharing import Apart
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from ..encoder_decoder import HookedEncoderDecoder
    from ..transformer import HookedTransformer

FORMAT = "attention-atlas/1"
OWN_FIELDS = ("format", "tokenizer")
"""Fields of config.json beside those of the model's config.

"tokenizer" is whether a tokeniser belongs to the model, or, where that is a small one, what it is made of."""


def save_model(model: HookedTransformer | HookedEncoderDecoder, folder: str | PathLike[str]) -> None:
    """Write a model to a folder, which is made if need be. Each file is replaced as a whole, config.json last.

    Other files of the folder stay: those of a sharded checkpoint, or of a tokeniser that is not this model's, have no effect
    beside ours. Tied embeddings are stored once. Raises CheckpointError where the folder is a file or cannot be written.
    """
    from safetensors.torch import save_file

    path = user_path(folder, "the folder to save to")
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"cannot save to {path}: it is a file, wanted a folder.")
    make_folder(path)
    # Under the names of a fresh model: weights that the config ties are stored once, others even where they happen to be one.
    apart, parameters = Apart(), dict(model.named_parameters(remove_duplicate=False))
    names = [name for name, _ in empty_model(model.cfg).named_parameters()]
    tensors = {name: apart(parameters[name].detach().cpu().contiguous()) for name in names}
    write_atomically(path / SINGLE, lambda temporary: save_file(tensors, temporary, metadata={"format": "pt"}))
    is_small = isinstance(model.tokenizer, SmallTokenizer)
    if model.tokenizer is not None and not is_small:
        model.tokenizer.save(path)
    tokenizer = model.tokenizer.to_dict() if is_small else model.tokenizer is not None
    write_json(path / "config.json", {"format": FORMAT, "tokenizer": tokenizer, **model.cfg.to_dict()})


def load_own_format(
    folder: Path, config: dict[str, Any], n_ctx: int | None, dtype: torch.dtype, device: torch.device | str
) -> HookedTransformer | HookedEncoderDecoder:
    """A model that `save_model` wrote. Raises CheckpointError for another format or version, ConfigError for a bad config."""
    from .load import with_context

    where = str(folder / "config.json")
    if config["format"] != FORMAT:
        raise CheckpointError(f"{where} has format {config['format']!r}, wanted {FORMAT!r}.")
    stated = config.get("tokenizer", True)
    if not isinstance(stated, dict):
        FLAG.check("tokenizer", stated, where)
    source = SafetensorsFolder(folder)
    check_layers(config.get("n_layers"), len(set(source.names())))
    try:
        small = small_tokenizer(stated) if isinstance(stated, dict) else None
        cfg = TransformerConfig.from_dict({key: value for key, value in config.items() if key not in OWN_FIELDS})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    cfg = with_context(cfg, n_ctx)
    model = build_model(cfg, source, None, (), dtype, device)
    model.tokenizer = Tokenizer.from_folder(folder) if stated is True else small
    return model
