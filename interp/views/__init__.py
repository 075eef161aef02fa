"""Self-contained HTML views of heads and circuits: pure functions from plain results to text.

Each view comes as a fragment for a report and, through `page_html`, as a page of its own. A page is one file without a
single address in it: it opens offline and asks for nothing.
"""

from __future__ import annotations

from .circuit import circuit_fragment, circuit_html
from .curve import curve_fragment
from .head_map import head_map_fragment, head_map_html
from .page import Fragment, ViewError, page_html, save_html
from .report import Section, report_html
from .table import table_fragment

__all__ = [
    "Fragment",
    "Section",
    "ViewError",
    "circuit_fragment",
    "circuit_html",
    "curve_fragment",
    "head_map_fragment",
    "head_map_html",
    "page_html",
    "report_html",
    "save_html",
    "table_fragment",
]
