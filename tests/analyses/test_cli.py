"""Options from a config dataclass, one-line errors with status 2, and units that are not computed twice."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from analyses._cli import REQUIRED, RunConfig, cell, option, parse, print_table, run_script
from analyses._run import Run, code_version
from interp.errors import PromptError
from models import load_model


@dataclass(frozen=True, kw_only=True)
class Options(RunConfig):
    sizes: tuple[int, ...] = option((1, 2), "some sizes")
    kind: str = option("red", "a colour", choices=("red", "blue"))
    limit: float | None = option(None, "a limit")
    strict: bool = option(False, "be strict")


@dataclass(frozen=True, kw_only=True)
class Needy:
    file: Path = option(REQUIRED, "a file")


def test_flags_become_fields() -> None:
    config = parse(Options, "test", "m --out o --sizes 3 4 5 --kind blue --limit 0.5 --strict --no-bos --seed 7".split())
    assert config == Options(model="m", out=Path("o"), sizes=(3, 4, 5), kind="blue", limit=0.5, strict=True, bos=False, seed=7)
    assert parse(Options, "test", ["m"]) == Options(model="m")
    assert parse(Options, "test", ["m", "--bos"]).bos is True


@pytest.mark.parametrize(
    "flags, message",
    [
        ("", "required: model"),
        ("m --kind green", "invalid choice: 'green'"),
        ("m --sizes x", "invalid int value: 'x'"),
        ("m --unknown 3", "unrecognized arguments: --unknown 3"),
    ],
)
def test_bad_flags_give_one_line(flags: str, message: str, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(Options, "test", flags.split())
    error = capsys.readouterr().err
    assert stop.value.code == 2 and message in error and error.count("\n") == 1


def test_required_option(capsys) -> None:
    with pytest.raises(SystemExit):
        parse(Needy, "test", [])
    assert "required: --file" in capsys.readouterr().err
    assert parse(Needy, "test", ["--file", "x"]).file == Path("x")


def test_mistakes_of_the_user_give_one_line_and_bugs_do_not(capsys) -> None:
    def mistaken(config: Options) -> None:
        raise PromptError("pair 3\nis odd.")

    assert run_script(Options, mistaken, "", ["m"]) == 2
    assert capsys.readouterr().err == "error: pair 3 is odd.\n"

    def unwritable(config: Options) -> None:
        Path("/dev/null/x").mkdir()

    assert run_script(Options, unwritable, "", ["m"]) == 2
    assert capsys.readouterr().err == "error: cannot read or write what was named (Not a directory: /dev/null/x)\n"

    def interrupted(config: Options) -> None:
        raise KeyboardInterrupt

    assert run_script(Options, interrupted, "", ["m"]) == 130
    assert capsys.readouterr().err.startswith("interrupted; finished parts are kept")

    def broken(config: Options) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_script(Options, broken, "", ["m"])


def test_cells_and_table(capsys) -> None:
    assert [cell(value) for value in (None, float("nan"), 0.12345, 3, ["a", "b"], "x")] == ["-", "-", "0.123", "3", "a, b", "x"]
    print_table("a title", ["head", "score"], [["1.3", 0.5]])
    out = capsys.readouterr().out
    assert "a title" in out and "1.3" in out and "0.500" in out


def test_units_resume_and_follow_their_inputs(tmp_path: Path) -> None:
    calls: list[int] = []

    def compute() -> dict[str, int]:
        calls.append(1)
        return {"n": len(calls)}

    def unit(**changes: object) -> int:
        config = Options(model="induction-2l", out=tmp_path, **{k: v for k, v in changes.items() if k == "force"})
        return Run(config).unit("part", compute, x=changes.get("x", 0))["n"]

    assert [unit(), unit()] == [1, 1]
    assert unit(x=1) == 2
    assert unit(x=1, force=True) == 3
    stored = json.loads((tmp_path / "units" / "part.json").read_text())
    assert stored["value"] == {"n": 3} and len(code_version()) == 64


def test_units_follow_the_models_config(tmp_path: Path) -> None:
    model = load_model("induction-2l")
    for scale in (1.0, 0.5):
        model.cfg = model.cfg.replace(attn_scale=scale)
        model.save(tmp_path / "model")
        run = Run(Options(model=str(tmp_path / "model"), out=tmp_path / "out"))
        assert run.unit("part", lambda run=run: run.model.cfg.attn_scale) == scale


def test_default_folder_and_a_file_in_its_place(tmp_path: Path) -> None:
    assert Run(Options(model="induction-2l"), "induction_heads").folder == Path("out/induction-2l/induction_heads")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ValueError, match="is a file; give a folder"):
        Run(Options(model="induction-2l", out=file))
