"""Fixtures that open pages in a real browser, offline, and fail a test whose page asks for anything or complains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interp.views import save_html

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip(f"no browser at {CHROMIUM}")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield started
        started.close()


class Pages:
    """Opens HTML text from files and notes every request and every line on a console."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self.browser, self.folder = browser, folder
        self.troubles: list[str] = []
        self.opened = 0

    def open(self, text: str, **options: Any) -> Any:
        self.opened += 1
        path = save_html(self.folder / f"page{self.opened}.html", text)
        page = self.browser.new_page(viewport={"width": 1400, "height": 900}, **options)
        page.on("console", lambda message: self.troubles.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("request", lambda request: request.url != path.as_uri() and self.troubles.append(f"request: {request.url}"))
        page.goto(path.as_uri())
        page.wait_for_timeout(100)
        return page


@pytest.fixture(scope="module")
def pages(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(browser, tmp_path_factory.mktemp("pages"))


@pytest.fixture
def nothing_asked_and_nothing_complained(pages: Pages) -> Iterator[None]:
    """No request but for the page itself (a file the reader saves is an object in memory), no word on the console."""
    yield
    found = [trouble for trouble in pages.troubles if not trouble.startswith("request: blob:")]
    pages.troubles.clear()
    assert not found


@pytest.fixture
def open_page(pages: Pages) -> Iterator[Open]:
    """Opens a page for one test alone."""
    opened: list[Any] = []

    def open_one(text: str, **options: Any) -> Any:
        opened.append(pages.open(text, **options))
        return opened[-1]

    yield open_one
    for page in opened:
        page.close()
