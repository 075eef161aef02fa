"""The toolkit's own `models` package, or a clear error when another package of that name would be imported instead.

`models` is a name that many projects use for a folder of their own. Python imports whichever it finds first, so a script
started beside such a folder would run half on its modules and half on ours.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

OWN_MODELS = Path(__file__).resolve().parent.parent / "models"


def import_models() -> ModuleType:
    """Import and return the toolkit's `models` package.

    Raises ImportError, as `require_own_models` does, when the name belongs to something else.
    """
    require_own_models()
    return importlib.import_module("models")


def require_own_models() -> None:
    """Check where `models` would come from, or came from, without importing it: a stranger's code is not run.

    Raises ImportError naming the foreign path when that is not the folder beside `interp`.
    """
    found = _location_of_models()
    if found == OWN_MODELS:
        return
    if found is None:
        raise ImportError(f"this toolkit's 'models' package is missing: it should be at {OWN_MODELS}; reinstall attention-atlas.")
    raise ImportError(
        f"'models' here is {found}, not this toolkit's {OWN_MODELS}. Run from another folder, or rename {found.name!r} there."
    )


def _location_of_models() -> Path | None:
    """The folder of the package (or the file of the module) that the name `models` stands for; None when there is none."""
    loaded = sys.modules.get("models")
    spec = getattr(loaded, "__spec__", None) if loaded is not None else importlib.util.find_spec("models")
    if spec is None:
        file = getattr(loaded, "__file__", None)
        return None if file is None else _package_folder(Path(file))
    if spec.origin is not None:
        return _package_folder(Path(spec.origin))
    folders = list(spec.submodule_search_locations or [])
    return Path(folders[0]).resolve() if folders else None


def _package_folder(file: Path) -> Path:
    file = file.resolve()
    return file.parent if file.name.startswith("__init__.") else file
