"""One self-contained page: fragments, the scripts and styles they need (each once), and nothing from a network.

A view is a `Fragment`: markup that carries its data as an inert JSON block, plus the names of the files in `static/`
that bring it to life. `page_html` joins fragments into one file that opens from a disk; its content security policy
forbids every request, so a page that loads is a page that needs nothing else.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from interp.errors import InterpError
from interp.run import write_text

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
BASE_ASSETS = ("base.css", "base.js")


class ViewError(InterpError):
    """Data that a view cannot show: the message names the field, what was got and what was wanted."""


@dataclass(frozen=True)
class Fragment:
    """A view to place in a page.

    html: markup, already escaped. assets: names of files in `static/`, in loading order. height: how tall a notebook
    shows it, in CSS pixels.
    """

    html: str
    assets: tuple[str, ...] = ()
    title: str = ""
    height: int = 720

    def _repr_html_(self) -> str:
        """A frame of its own, so that neither a notebook's styles nor its security policy reach the view."""
        page = page_html(self.title, [self], bare=True, body_class="padded")
        sandbox = "allow-scripts allow-downloads"
        style = f"width:100%;height:{self.height}px;border:0"
        return f'<iframe sandbox="{sandbox}" allowfullscreen style="{style}" srcdoc="{escape(page)}"></iframe>'


def page_html(title: str, body: Iterable[Fragment | str], *, bare: bool = False, body_class: str = "") -> str:
    """A complete HTML document. `body` holds fragments and ready-made markup; `bare` leaves out the page's heading."""
    parts = list(body)
    wanted = [name for part in parts if isinstance(part, Fragment) for name in part.assets]
    names = list(dict.fromkeys((*BASE_ASSETS, *wanted)))
    styles = "\n".join(asset(name) for name in names if name.endswith(".css"))
    scripts = "\n".join(asset(name) for name in names if name.endswith(".js"))
    content = "\n".join(part.html if isinstance(part, Fragment) else part for part in parts)
    heading = "" if bare else f'<header class="page-head"><h1>{escape(title)}</h1>{THEME_BUTTON}</header>'
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>\n{styles}\n</style>\n</head>\n"
        f'<body class="{escape(body_class)}">\n{heading}\n{content}\n<script>\n{scripts}\nAtlas.start();\n</script>\n'
        "</body>\n</html>\n"
    )


THEME_BUTTON = (
    '<button type="button" class="button" data-theme-toggle aria-label="Switch between light and dark">'
    '<span class="when-light">Dark</span><span class="when-dark">Light</span></button>'
)


@cache
def asset(name: str) -> str:
    """The text of a file in `static/`. A closing tag inside it would end the page's own element, so none may occur."""
    text = files(__package__).joinpath("static", name).read_text(encoding="utf-8").strip()
    if "</script" in text.lower() or "</style" in text.lower():
        raise ViewError(f"static file {name!r} contains a closing script or style tag, which would end the page's own.")
    return text


def json_block(data: Any) -> str:
    """`data` as an inert JSON element. `<`, `>`, `&` and line separators are escaped, so no text can break out of it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json">{text}</script>'


def finite(value: Any, field: str) -> float | None:
    """`value` as a finite float, or None where it is undefined (null, NaN, infinite). Raises ViewError for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ViewError(f"{field} is {value!r}; wanted a number or null.")
    return float(value) if math.isfinite(value) else None


def rounded(value: float, digits: int = 7) -> float:
    """`value` to `digits` significant digits: all that float32 holds, at half the length."""
    return float(f"{value:.{digits}g}")


def attributes(values: Mapping[str, object]) -> str:
    """HTML attributes, escaped; None leaves one out, True writes the bare name."""
    pairs = ((name, value) for name, value in values.items() if value is not None and value is not False)
    return "".join(f" {name}" if value is True else f' {name}="{escape(str(value))}"' for name, value in pairs)


def save_html(path: str | os.PathLike[str], html: str) -> Path:
    """Writes `html` to `path` in one step (a reader sees the old file or the new one, never half) and returns the path."""
    return write_text(os.fspath(path), html)
