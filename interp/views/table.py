"""The table of heads: sortable, filterable, labels as chips with their evidence, undefined values as a dash."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from .head_map import colour_range
from .page import Fragment, ViewError, json_block
from .scores import Heads, compact, read_heads

ASSETS = ("table.css", "table.js")


def table_fragment(heads: Mapping[str, Any], *, sort: str | None = None, title: str = "Heads") -> Fragment:
    """The heads of a heads.json, to place in a page, sorted downwards by `sort` (induction, or the first score there is).

    Numbers have 3 significant digits; the file for download has 5. Raises ViewError for a heads.json that contradicts itself.
    """
    data = read_heads(heads)
    keys = [score.key for score in data.scores]
    if sort is not None and sort not in keys:
        raise ViewError(f"sort is {sort!r}, which no head has; wanted one of {', '.join(keys) or 'none: there are no scores'}.")
    has_extra = any(score.extra for score in data.scores)
    more = '<label class="check"><input type="checkbox" data-more> all columns</label>' if has_extra else ""
    html = (
        f'<section class="heads" data-view="table" aria-label="{escape(title)}">{json_block(_payload(data, sort))}'
        '<div class="controls"><label class="field"><span class="sr-only">Filter</span>'
        '<input type="search" data-filter placeholder="Filter: L18, induction, entropy &lt; 0.5" '
        'autocomplete="off" spellcheck="false"></label>'
        '<output class="count" data-count aria-live="polite"></output><span class="spacer"></span>'
        f"{more}"
        '<button type="button" class="button" data-csv title="Save the rows shown as a CSV file">Export CSV</button></div>'
        '<div class="table-frame" tabindex="0" role="region" aria-label="Table of heads"><table><thead></thead><tbody></tbody>'
        "</table></div></section>"
    )
    return Fragment(html, ASSETS, title, height=560)


def _payload(data: Heads, sort: str | None) -> dict[str, Any]:
    columns = []
    for score in data.scores:
        values = [value for row in data.rows if (value := row.values.get(score.key)) is not None]
        low, high, _ = colour_range(score, values)
        title = f"{score.title} ({score.unit})" if score.unit else score.title
        columns.append([score.key, score.short, title, score.meaning, low, high, int(score.extra)])
    return {
        "columns": columns,
        "rows": [
            [row.layer, row.head, [[label.text, label.role, label.evidence] for label in row.labels]]
            + [compact(row.values.get(score.key)) for score in data.scores]
            for row in data.rows
        ],
        "sort": sort or (data.scores[0].key if data.scores else "head"),
    }
