"""What a visitor sees of the site: the front page, a phone, the search, and no error in the log."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.chromium import LIMIT, browser, set_screen, wait

DRAWN = "return document.getElementById('play-picture').shadowRoot"
PHONE = 390


@pytest.fixture(scope="module")
def root(address: str) -> str:
    return address.rpartition("/")[0]


@pytest.fixture(scope="module")
def driver(root: str) -> Iterator[Any]:
    """One browser; at its end nothing may stand in its log, such as a file that is not there."""
    with browser(f"{root}/index.html") as driver:
        yield driver


def opened(driver: Any, address: str) -> None:
    driver.get("about:blank")
    driver.get(address)


def test_the_front_page_shows_how_to_begin(driver: Any, root: str) -> None:
    set_screen(driver, 1200)
    opened(driver, f"{root}/index.html")
    article = driver.find_element("css selector", "article")
    assert "pip install" in article.text
    picture = article.find_element("css selector", "img")
    assert driver.execute_script("return arguments[0].naturalWidth", picture) > 100
    heads = [head.text for head in article.find_elements("css selector", "th")]
    assert any("kazoo" in head for head in heads)
    assert driver.get_log("browser") == []


def test_no_link_is_called_like_a_file(driver: Any, root: str) -> None:
    for page in ("index", "connection-loss-reference", "how-to/index", "questions", "wire"):
        opened(driver, f"{root}/{page}.html")
        links = driver.execute_script(
            "return [...document.querySelectorAll('article a')].map(a => a.textContent.trim())"
        )
        assert links
        assert [text for text in links if re.search(r"\.(md|json|html)$", text)] == []


@pytest.mark.parametrize(
    ("page", "column"),
    [
        ("connection-loss", "what to do"),
        ("connection-loss-reference", "what to do"),
        ("fences", "what ends it"),
        ("index", "zkwire"),
    ],
)
def test_a_phone_shows_the_last_column(driver: Any, root: str, page: str, column: str) -> None:
    set_screen(driver, PHONE)
    opened(driver, f"{root}/{page}.html")
    script = """
    const found = [];
    for (const table of document.querySelectorAll('table.docutils')) {
      const heads = [...table.querySelectorAll('thead th')].map((head) => head.textContent.trim());
      const at = heads.indexOf(arguments[0]);
      for (const row of at < 0 ? [] : table.tBodies[0].rows) {
        const cell = row.cells[at];
        const {left, right} = cell.getBoundingClientRect();
        const card = table.classList.contains('cards');
        const name = card ? getComputedStyle(cell, '::before').content : arguments[0];
        if (cell.textContent.trim()) found.push([left, right, name]);
      }
    }
    return found.slice(0, 60);
    """
    cells = driver.execute_script(script, column)
    assert cells, f"no table has the column {column!r}"
    for left, right, name in cells:
        assert 0 <= left < right <= PHONE
        assert column in name
    width = driver.execute_script("return document.documentElement.scrollWidth")
    assert width <= PHONE


def test_a_wide_screen_keeps_its_tables(driver: Any, root: str) -> None:
    set_screen(driver, 1200)
    opened(driver, f"{root}/connection-loss.html")
    assert driver.find_elements("css selector", "table.cards") == []


@pytest.mark.parametrize(
    ("words", "page"),
    [("ConnectionLoss", "connection-loss.html"), ("OutcomeUnknownError", "connection-loss")],
)
def test_the_search_finds(driver: Any, root: str, words: str, page: str) -> None:
    set_screen(driver, 1200)
    opened(driver, f"{root}/search.html?q={words}")
    latest = time.monotonic() + LIMIT
    while not (found := driver.find_elements("css selector", "#search-results li a")):
        assert time.monotonic() < latest
        time.sleep(0.05)
    time.sleep(0.5)  # results are added one by one, a few milliseconds apart
    found = driver.find_elements("css selector", "#search-results li a")
    assert any(page in link.get_attribute("href") for link in found)
    # Sphinx looks for the name of an object as if it were a selector, and says that it fails.
    said = [complaint["message"] for complaint in driver.get_log("browser")]
    assert [message for message in said if "Anchored content block" not in message] == []


def test_the_playground_lands_at_what_fails(driver: Any, root: str) -> None:
    set_screen(driver, 1200)
    opened(driver, f"{root}/playground.html#lesson=lost-reply&flags=--op+delete&at=fault")
    wait(driver)
    words = driver.find_element("id", "play-words").text
    assert "connection cut before the answer arrives" in words
    opened(driver, f"{root}/playground.html#lesson=bug-herd&search=yes")
    wait(driver)
    assert "at the same time" in driver.find_element("id", "play-words").text
    opened(driver, f"{root}/playground.html#lesson=lost-reply")
    wait(driver)
    assert driver.find_element("id", "play-where").text.startswith("Step 1 of ")


def test_the_heads_of_the_lanes_stay_and_the_times_go_on(driver: Any, root: str) -> None:
    set_screen(driver, 1200)
    opened(driver, f"{root}/playground.html#lesson=bug-herd&search=yes")
    wait(driver)
    box = driver.find_element("id", "play-picture")
    assert driver.execute_script("return arguments[0].scrollTop", box) > 0, "nothing has scrolled"
    top, above, names = driver.execute_script(
        f"""
        const heads = ({DRAWN.removeprefix("return ")}).querySelector('.heads svg');
        return [heads.getBoundingClientRect().top, arguments[0].getBoundingClientRect().top,
                [...heads.querySelectorAll('text')].map(t => t.textContent)];
        """,
        box,
    )
    assert abs(top - above) < 3
    assert {"A", "B", "server"} <= set(names)
    times = driver.execute_script(
        f"return [...({DRAWN.removeprefix('return ')}).querySelectorAll('g > text.dim')]"
        ".map(t => t.textContent).filter(t => t.startsWith('+'))"
    )
    assert len(set(times)) > len(times) / 2
    assert float(times[-1]) > float(times[0])


def test_a_click_shows_the_fields_of_a_frame(driver: Any, root: str) -> None:
    set_screen(driver, PHONE)
    opened(driver, f"{root}/wire-reference.html")
    (details, *_) = driver.find_elements("css selector", "details:has(summary code)")
    table = details.find_element("css selector", "table")
    assert not table.is_displayed()
    details.find_element("css selector", "summary").click()
    assert table.is_displayed()
    assert "protocol_version" in table.text
    assert driver.execute_script("return document.documentElement.scrollWidth") <= PHONE
