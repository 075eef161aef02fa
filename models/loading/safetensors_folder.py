"""Reading a folder of safetensors: one file, or shards with an index. Pickled checkpoints are refused, never opened."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import CheckpointError
from .json_file import read_json
from .transforms import Shape

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


class SafetensorsFolder:
    """The tensors of a checkpoint folder. Files are memory-mapped: a tensor that is not converted is not copied.

    Raises CheckpointError where there is no safetensors file, a shard is missing, damaged or named outside the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, Any] = {}
        self._paths: dict[str, Path] = {}
        for path, promised in _shards(folder).items():
            handle = _open(path)
            names = list(handle.keys())
            if absent := sorted(promised - set(names)):
                raise CheckpointError(f"{folder / INDEX} says that {path.name} holds '{absent[0]}', which it does not.")
            for name in names:
                self._files[name], self._paths[name] = handle, path

    def names(self) -> Iterable[str]:
        return self._files

    def shape(self, name: str) -> Shape:
        return tuple(self._files[name].get_slice(name).get_shape())

    def read(self, name: str) -> Tensor:
        return self._files[name].get_tensor(name)

    def where(self, name: str) -> str:
        return str(self._paths.get(name, self.folder))


def refuse_pickle(path: Path) -> None:
    """Raise CheckpointError where a path names a pickled checkpoint."""
    if path.suffix.lower() in PICKLED:
        raise CheckpointError(
            f"{path} is a pickled checkpoint, which can run code when it is opened, so it is refused; convert it to safetensors."
        )


def _shards(folder: Path) -> dict[Path, set[str]]:
    """Each file with the tensors that the index promises in it. A single file goes before an index, which may be left over."""
    if (folder / SINGLE).is_file():
        return {folder / SINGLE: set()}
    if (folder / INDEX).is_file():
        return _indexed(folder)
    for path in sorted(folder.iterdir()):
        refuse_pickle(path)
    raise CheckpointError(f"{folder} holds no weights: wanted {SINGLE}, or shards with {INDEX}.")


def _indexed(folder: Path) -> dict[Path, set[str]]:
    weight_map = read_json(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{folder / INDEX} has no 'weight_map' from tensors to files.")
    shards: dict[Path, set[str]] = {}
    for tensor, file in weight_map.items():
        if not isinstance(file, str) or Path(file).name != file or "\\" in file or not file.endswith(".safetensors"):
            raise CheckpointError(
                f"{folder / INDEX} puts '{tensor}' in {file!r}, wanted the name of a .safetensors file in the folder."
            )
        if not (folder / file).is_file():
            raise CheckpointError(f"{folder / INDEX} names {file}, which is not in the folder.")
        shards.setdefault(folder / file, set()).add(tensor)
    return shards


def _open(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged or incomplete, so it cannot be read as safetensors: {error}.") from None
