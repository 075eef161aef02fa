"""What all scripts share: options from a config dataclass, one-line errors, loading, tables.

An analysis is a frozen dataclass of options (`RunConfig` and its own fields), a function `run(config)`, and

    def main(argv=None) -> int:
        return run_script(Config, run, __doc__, argv)

Exit status: 0, or 2 with one line on standard error that says what was wrong with the input, or 130 when interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn, get_args, get_type_hints

from interp.errors import InterpError

REQUIRED: Any = MISSING


def option(default: Any, help: str, *, choices: Sequence[Any] | None = None) -> Any:
    """A config field with its help text; `default=REQUIRED` must be given."""
    metadata = {"help": help, "choices": choices}
    return field(metadata=metadata) if default is REQUIRED else field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Options of every analysis of a model."""

    model: str = option(REQUIRED, "name of a model, folder with config.json and safetensors, or .gguf file")
    out: Path | None = option(None, "folder for the results, made if absent; default: out/MODEL, or out/MODEL/ANALYSIS")
    seed: int = option(0, "seed of everything random")
    bos: bool | None = option(None, "put a BOS in front of every prompt; default: as the model's own tokenizer does")
    force: bool = option(False, "compute again what an earlier run into the same folder has finished")
    progress: bool | None = option(None, "progress bars; default: on a terminal only")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, without the usage in front of it."""
        self.exit(2, f"{self.prog}: {message} (--help lists the options)\n")


def parse(config_type: type, description: str, argv: Sequence[str] | None = None) -> Any:
    """Command line to config. The field `model` is positional; booleans become --x and --no-x; tuples take several values."""
    module = sys.modules[config_type.__module__]
    name = getattr(module.__spec__, "name", config_type.__module__)
    parser = _Parser(prog=f"python -m {name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    hints = get_type_hints(config_type)
    for entry in fields(config_type):
        _add(parser, entry, hints[entry.name])
    given = vars(parser.parse_args(argv))
    return config_type(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


def _add(parser: argparse.ArgumentParser, entry: Field[Any], hint: Any) -> None:
    name, required = entry.name, entry.default is MISSING
    options: dict[str, Any] = {"help": entry.metadata.get("help"), "default": None if required else entry.default}
    if not required and entry.default not in (None, ()) and not isinstance(entry.default, bool):
        options["help"] += f" (default: {_words(entry.default)})"
    if name == "model":
        parser.add_argument(name, help=options["help"])
        return
    kinds = [kind for kind in get_args(hint) or (hint,) if kind not in (type(None), Ellipsis)]
    if bool in kinds:
        options["action"] = argparse.BooleanOptionalAction if entry.default is not False else "store_true"
    else:
        options |= {"type": kinds[0], "choices": entry.metadata.get("choices"), "required": required}
        if isinstance(entry.default, tuple):
            options["nargs"] = "+"
    parser.add_argument(f"--{name.replace('_', '-')}", **options)


def _words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def run_script(config_type: type, run: Callable[[Any], Any], description: str | None, argv: Sequence[str] | None = None) -> int:
    """Parse, run, and turn mistakes of the user into one line and exit status 2; an interrupt, into one line and 130."""
    from models.errors import CheckpointError, ConfigError, HookError, InputError

    try:
        run(parse(config_type, description or "", argv))
    except OSError as error:
        named = f"{error.strerror}: {error.filename}" if error.strerror and error.filename else str(error)
        return _mistake(f"cannot read or write what was named ({named})")
    except (InterpError, CheckpointError, ConfigError, HookError, InputError) as error:
        return _mistake(str(error))
    except KeyboardInterrupt:
        print("interrupted; finished parts are kept, and the same command goes on from them", file=sys.stderr)
        return 130
    return 0


def _mistake(sentence: str) -> int:
    print(f"error: {' '.join(sentence.split())}", file=sys.stderr)
    return 2


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A short table on standard output: the first column to the left, numbers to the right."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for i, column in enumerate(columns):
        words = i == 0 or any(isinstance(row[i], list | tuple) for row in rows)
        table.add_column(column, justify="left" if words else "right", overflow="fold")
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    console = Console()
    # A file or a pipe has no width: nothing is folded there.
    console = console if console.is_terminal else Console(width=160)
    console.print(title, highlight=False, markup=False)
    console.print(table)


def cell(value: Any) -> str:
    """A table cell: three decimals for floats, a dash for what is undefined, commas in lists."""
    if value is None or value != value:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
