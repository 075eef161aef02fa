"""The report: every file with its fixed name, the induction circuit in words, one page that opens offline without an error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from analyses import report
from analyses._pages import COLUMN_OF, node_labels
from analyses.report import ReportConfig, options
from analyses.trace_circuit import CircuitConfig
from interp.heads.roles import MEANINGS

FILES = (
    "heads.json",
    "temperature.json",
    "circuit.json",
    "circuit.graphml",
    "circuit.dot",
    "faithfulness.json",
    "report.html",
    "manifest.json",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("report")
    assert report.main(["induction-2l", "--out", str(out), "--no-progress"]) == 0
    return out


def test_files(folder: Path) -> None:
    assert all((folder / name).stat().st_size > 200 for name in FILES)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["model"] == "induction-2l" and manifest["seed"] == 0
    assert {"heads", "edges", "faithfulness", "curve-magnitude", "curve-benefit"} <= set(manifest["units"])
    assert all(len(record["sha256"]) == 64 for record in manifest["prompts"].values())
    circuit = json.loads((folder / "circuit.json").read_text())
    assert circuit["edges"]["a0.h0->a1.h3<k>"]["in_graph"] and circuit["edges"]["a0.h0->a1.h3<k>"]["score"] < -1


def test_page_tells_the_circuit(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    assert "Previous-token heads compose into the induction heads by K" in page
    assert "faithfulness" in page and "repeated random tokens" in page and "under patching ablation" in page
    assert '"label":"induction 0.8' in page and '"label":"previous token 0.9' in page
    assert "http://" not in page.replace("http://www.w3.org", "") and "https://" not in page


def test_second_run_computes_nothing(folder: Path) -> None:
    before = {unit.name: unit.stat().st_mtime_ns for unit in (folder / "units").iterdir()}
    config = ReportConfig(model="induction-2l", out=folder, progress=False)
    assert report.run(config).page == folder / "report.html"
    assert {unit.name: unit.stat().st_mtime_ns for unit in (folder / "units").iterdir()} == before


def test_page_opens_in_a_browser(folder: Path) -> None:
    """No error on the console, no request, and a view of each kind drawn."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium on the path")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        noise: list[str] = []
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("request", lambda request: noise.append(request.url) if not request.url.startswith(("file:", "data:")) else None)
        page.goto((folder / "report.html").as_uri())
        page.wait_for_load_state("load")
        drawn = {view: page.locator(f'[data-view="{view}"]').count() for view in ("head_map", "table", "circuit", "curve")}
        rows = page.locator('[data-view="table"] tbody tr').count()
        browser.close()
    assert noise == [] and drawn == {"head_map": 2, "table": 1, "circuit": 1, "curve": 1} and rows == 8


def test_options_pass_on_what_is_shared(tmp_path: Path) -> None:
    config = ReportConfig(model="m", out=tmp_path, seed=3, bos=True, n_pairs=4, method="eap", top=7)
    passed = options(CircuitConfig, config)
    assert (passed.seed, passed.bos, passed.n_pairs, passed.method, passed.top, passed.greedy) == (3, True, 4, "eap", 7, True)
    assert passed.metric == "logit_diff"


def test_node_labels_name_the_first_label() -> None:
    heads = [
        {"layer": 1, "head": 2, "labels": ["induction", "first-token"], "induction": 0.86, "first_token": 0.5},
        {"layer": 0, "head": 0, "labels": []},
        {"layer": 0, "head": 1, "labels": ["positional"]},
    ]
    assert node_labels({"heads": heads}) == {"a1.h2": "L1H2 induction 0.86", "a0.h1": "L0H1 positional"}
    assert node_labels(None) == {}
    assert set(MEANINGS) <= set(COLUMN_OF.values())


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nowhere"], "no folder, file or model called 'nowhere'"),
        (["induction-2l", "--pairs", "no.json"], "no.json does not exist"),
    ],
)
def test_mistakes_give_one_line(arguments: list[str], message: str, tmp_path: Path, capsys) -> None:
    assert report.main([*arguments, "--out", str(tmp_path), "--no-progress"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
