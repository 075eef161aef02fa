"""One report in one file: contents, sections of prose and views, and at the end the manifest that says how it was made."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from .page import THEME_BUTTON, Fragment, ViewError, page_html

Part = Fragment | str | Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """A titled piece of a report.

    parts, in order: a `Fragment`; text (paragraphs separated by blank lines, `code` in backticks, all else literal); or a
    mapping of named values, shown as one line of facts.
    """

    title: str
    parts: Sequence[Part]


def report_html(title: str, sections: Sequence[Section], manifest: Mapping[str, Any], *, summary: str = "") -> str:
    """A complete page. Scripts and styles of the fragments enter once each; text is escaped wherever it came from."""
    names = _anchors([*(section.title for section in sections), "Manifest"])
    fragments = [part for section in sections for part in section.parts if isinstance(part, Fragment)]
    assets = ("report.css", "report.js", *(name for fragment in fragments for name in fragment.assets))
    parts = [_section(section, name) for section, name in zip(sections, names, strict=False)]
    body = (
        f'<div class="report" data-view="report"><script type="application/json">null</script>{_contents(sections, names)}'
        f'<main><header class="report-head"><div><h1>{escape(title)}</h1>{_prose(summary)}</div>{THEME_BUTTON}</header>'
        f"{''.join(parts)}{_manifest(manifest, names[-1])}</main></div>"
    )
    return page_html(title, [Fragment(body, assets)], bare=True)


def _anchors(titles: Sequence[str]) -> list[str]:
    """An address within the page for each title, all different."""
    names: list[str] = []
    for title in titles:
        stem = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
        name, number = stem, 2
        while name in names:
            name, number = f"{stem}-{number}", number + 1
        names.append(name)
    return names


def _contents(sections: Sequence[Section], names: Sequence[str]) -> str:
    titles = [*(section.title for section in sections), "Manifest"]
    items = "".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title in zip(names, titles, strict=True))
    return f'<nav class="contents" aria-label="Contents"><h2>Contents</h2><ol>{items}</ol></nav>'


def _section(section: Section, name: str) -> str:
    return f'<section class="part" id="{name}"><h2>{escape(section.title)}</h2>{"".join(map(_part, section.parts))}</section>'


def _part(part: object) -> str:
    if isinstance(part, Fragment):
        return part.html
    if isinstance(part, str):
        return _prose(part)
    if isinstance(part, Mapping):
        items = "".join(f"<div><dt>{escape(str(name))}</dt><dd>{escape(_text(value))}</dd></div>" for name, value in part.items())
        return f'<dl class="facts">{items}</dl>'
    raise ViewError(f"a part of a section is {type(part).__name__}; wanted a Fragment, text or a mapping of facts.")


def _prose(text: str) -> str:
    paragraphs = (escape(paragraph.strip()) for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip())
    return "".join(f'<p class="prose">{_code(paragraph)}</p>' for paragraph in paragraphs)


def _code(escaped: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)


def _manifest(manifest: Mapping[str, Any], name: str) -> str:
    cells = ((escape(key), escape(value)) for key, value in _rows(manifest))
    rows = "".join(f'<tr><th scope="row">{key}</th><td><code>{value}</code></td></tr>' for key, value in cells)
    return (
        f'<section class="part" id="{name}"><h2>Manifest</h2><div class="manifest-frame">'
        f'<table class="manifest"><tbody>{rows}</tbody></table></div></section>'
    )


def _rows(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested values as dotted names."""
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            rows += _rows(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", _text(value)))
    return rows


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple, Mapping)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
