"""What importing the packages costs and pulls in, and what happens beside another project's `models`.

All in fresh interpreters: this one has imported everything already.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
MAX_SECONDS_OVER_TORCH = 0.3
HEAVY = ["transformers", "transformer_lens", "pandas", "networkx", "matplotlib", "gguf", "tokenizers", "rich", "beartype"]

TIME_IMPORT = """
import importlib, json, sys, time
import torch
before = set(sys.modules)
start = time.perf_counter()
importlib.import_module(sys.argv[1])
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "added": sorted({name.split(".")[0] for name in set(sys.modules) - before})}))
"""


def python(code: str, *arguments: str, cwd: Path = PROJECT) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that finds this project after the working directory, as an installed one would be."""
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


def measure(package: str) -> dict:
    result = python(TIME_IMPORT, package)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("package", ["models", "interp"])
def test_import_is_light(package: str):
    added = set(measure(package)["added"])  # also compiles and warms what is timed next
    assert package in added
    assert not added.intersection(HEAVY)

    seconds = [measure(package)["seconds"] for _ in range(3)]
    if statistics.median(seconds) > MAX_SECONDS_OVER_TORCH:  # a busy machine? Three more runs decide
        seconds += [measure(package)["seconds"] for _ in range(3)]
    assert min(statistics.median(seconds[:3]), statistics.median(seconds[-3:])) <= MAX_SECONDS_OVER_TORCH, seconds


def test_interp_does_not_import_models():
    assert "models" not in measure("interp")["added"]


def test_the_project_finds_its_own_models(tmp_path: Path):
    code = "from interp._own_models import import_models; print(import_models().__file__)"
    result = python(code, cwd=tmp_path)
    assert result.stdout.strip() == str(PROJECT / "models" / "__init__.py"), result.stderr


def test_a_folder_that_is_no_package_does_no_harm(tmp_path: Path):
    (tmp_path / "models").mkdir()
    result = python("import analyses", cwd=tmp_path)
    assert result.returncode == 0, result.stderr


FOREIGN = {"package": "models/__init__.py", "module": "models.py"}
DOORS = {
    "analyses": "import analyses",
    "interp": "import interp; interp.load_model('induction-2l')",
    "import_models": "from interp._own_models import import_models; import_models()",
    "already imported": "import models; import analyses",
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("door", DOORS)
def test_a_foreign_models_is_named(tmp_path: Path, door: str, kind: str):
    file = tmp_path / FOREIGN[kind]
    file.parent.mkdir(exist_ok=True)
    file.write_text("print('a stranger ran')\n")
    foreign = file.parent if kind == "package" else file

    result = python(DOORS[door], cwd=tmp_path)

    assert result.returncode != 0
    last_line = result.stderr.strip().splitlines()[-1]
    assert last_line.startswith(f"ImportError: 'models' here is {foreign}, not this toolkit's {PROJECT / 'models'}.")
    assert ("a stranger ran" in result.stdout) == (door == "already imported")


def test_missing_models_is_said(tmp_path: Path):
    code = "import interp._own_models as own, sys; sys.meta_path.clear(); own.require_own_models()"
    result = python(code, cwd=tmp_path)
    assert "ImportError: this toolkit's 'models' package is missing" in result.stderr
