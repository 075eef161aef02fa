"""Results survive the disk unchanged, tabulate by labelled axes, and show themselves."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from interp.errors import ResultError
from interp.results import Result


@dataclass(frozen=True)
class Note:
    layer: int
    text: str


@dataclass(frozen=True, repr=False, eq=False)
class Depths(Result):
    schema: ClassVar[str] = "depths/1"
    axes: ClassVar[dict[str, tuple[str, ...]]] = {"depth": ("layer", "head"), "kept": ("layer", "head"), "total": ("layer",)}
    records: ClassVar[dict[str, type]] = {"notes": Note}

    model: str
    loss: float | None
    layer: tuple[int, ...]
    depth: Tensor
    kept: Tensor
    total: Tensor
    notes: tuple[Note, ...] = ()
    settings: tuple[float, ...] = ()


def depths(**changes) -> Depths:
    fields = {
        "model": "a <model>",
        "loss": None,
        "layer": (3, 5),
        "depth": torch.tensor([[0.1, math.nan], [math.inf, -math.inf]]),
        "kept": torch.tensor([[True, False], [True, True]]),
        "total": torch.tensor([7, 9]),
        "notes": (Note(3, "näh"),),
        "settings": (0.5, 1.0),
    }
    return Depths(**(fields | changes))


def test_a_result_survives_the_disk(tmp_path):
    before = depths()
    path = before.save(tmp_path / "new" / "depths.json")
    after = Depths.load(path)
    assert after.depth.dtype == torch.float32 and after.kept.dtype == torch.bool and after.total.dtype == torch.int64
    assert after.depth[0, 0] == before.depth[0, 0]  # to the last bit
    assert after.depth[0, 1].isnan() and after.depth[1].tolist() == [math.inf, -math.inf]
    assert (after.model, after.loss, after.layer, after.notes, after.settings) == (
        before.model,
        None,
        (3, 5),
        before.notes,
        (0.5, 1.0),
    )
    assert list(tmp_path.joinpath("new").iterdir()) == [path]


def test_the_file_is_strict_json(tmp_path):
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    text = depths(loss=math.nan).save(tmp_path / "depths.json").read_text()
    data = json.loads(text, parse_constant=refuse)
    assert data["schema"] == "depths/1" and data["loss"] is None
    assert data["depth"] == {
        "axes": ["layer", "head"],
        "dtype": "float32",
        "values": [[pytest.approx(0.1), None], ["inf", "-inf"]],
    }


def test_tables_are_labelled():
    frame = depths().to_pandas()
    assert list(frame.columns) == ["layer", "head", "depth", "kept"]
    assert frame[["layer", "head"]].values.tolist() == [[3, 0], [3, 1], [5, 0], [5, 1]]
    assert frame["kept"].tolist() == [True, False, True, True]
    assert depths().to_pandas(["layer"])["total"].tolist() == [7, 9]
    with pytest.raises(ResultError, match="no tensor with the axes"):
        depths().to_pandas(["head"])
    with pytest.raises(ResultError, match="no axis 'token'; its axes are layer, head"):
        depths().labels_of("token")


def test_a_result_shows_itself():
    shown = repr(depths())
    assert shown == "Depths(model='a <model>'): depth [2, 2], kept [2, 2], total [2]"
    page = depths()._repr_html_()
    assert "a &lt;model&gt;" in page and "<td>0.100</td>" in page and "http" not in page
    many = depths(layer=tuple(range(50)), depth=torch.zeros(50, 2), kept=torch.zeros(50, 2), total=torch.zeros(50))
    assert many._repr_html_().count("<tr") < 40 and "100 rows, the first 30 shown" in many._repr_html_()


@pytest.mark.parametrize(
    "text, message",
    [
        ("not json", "is not a JSON file"),
        ('{"schema": "edges/1"}', "expected a result with schema 'depths/1', got 'edges/1'"),
        ("[]", "got 'list'"),
        ('{"schema": "depths/1", "model": "m"}', "lacks loss, layer, depth"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, text: str, message: str):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ResultError, match=message):
        Depths.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ResultError, match="cannot read a result from .*nowhere.json: No such file"):
        Depths.load(tmp_path / "nowhere.json")


def test_results_do_not_change():
    with pytest.raises(AttributeError):
        depths().model = "other"
