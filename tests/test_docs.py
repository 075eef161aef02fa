"""The documentation's code runs as it stands, and its example of a variant is as short as it claims."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
PAGES = sorted((PROJECT / "docs").glob("*.md"))


def code_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf8"), re.S | re.M)


@pytest.mark.parametrize("page", [page for page in PAGES if code_blocks(page)], ids=lambda page: page.name)
def test_code_runs(page: Path) -> None:
    code = "\n".join(code_blocks(page))
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_a_variant_takes_less_than_60_lines() -> None:
    (code,) = code_blocks(PROJECT / "docs" / "adding_a_variant.md")
    assert len(code.strip().splitlines()) < 60
