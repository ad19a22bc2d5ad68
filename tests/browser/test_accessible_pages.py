"""Each page for readers without eyes, mouse or a wide screen, judged by axe-core.

Contrast, names of fields, texts for pictures, the order of headings, what the keyboard reaches: in
light colours on a wide screen, and in dark ones on a phone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import LIMIT, browser, set_screen, wait
from tests.check.environment import ROOT
from tests.check.npm import AXE
from tests.conftest import unavailable

AT_ONCE = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"], preload: false}).then(
  (found) => done(found.violations),
  (error) => done([{id: String(error), impact: "critical", nodes: [{html: ""}]}]));
"""
OURS_TOO = {"heading-order", "image-alt", "empty-heading", "page-has-heading-one"}
"""Rules that axe-core calls less than serious, and that hold here."""

BY_THE_THEME = {("search", "page-has-heading-one")}
"""Furo writes the heading of the search by a script, once something is searched."""

ONCE = {"api"}
"""A minute's work for each look, and drawn as the other pages are."""

PAGES = sorted(str(file.relative_to(ROOT / "docs"))[:-3] for file in ROOT.glob("docs/**/*.md"))
SCREENS = ((1200, False), (400, True))


def faults(driver: Any, name: str) -> list[str]:
    """What is wrong with the page that the browser shows."""
    driver.set_script_timeout(LIMIT)
    driver.command_executor.client_config.timeout = LIMIT
    driver.execute_script((AXE.folder / AXE.files[0]).read_text())
    return [
        f"{rule['id']}: {part['html'][:200]}"
        for rule in driver.execute_async_script(AT_ONCE)
        if (rule["impact"] in ("serious", "critical") or rule["id"] in OURS_TOO)
        and (name, rule["id"]) not in BY_THE_THEME
        for part in rule["nodes"]
    ]


@pytest.fixture(scope="module")
def driver(site: Path, address: str) -> Iterator[Any]:
    if not AXE.folder.exists():
        unavailable("there is no axe-core: python3 check.py browser fetches it")
    with browser((site / "index.html").as_uri()) as driver:
        yield driver


@pytest.mark.parametrize("name", [*PAGES, "search"])
def test_a_page_can_be_read_by_everybody(driver: Any, site: Path, address: str, name: str) -> None:
    playground = name == "playground"
    page = address if playground else (site / f"{name}.html").as_uri()
    for width, dark in SCREENS[: 1 if name in ONCE else None]:
        set_screen(driver, width, dark=dark)
        driver.get("about:blank")
        driver.get(f"{page}#lesson=paused-holder&at=27" if playground else page)
        if playground:
            wait(driver)
        assert faults(driver, name) == []
