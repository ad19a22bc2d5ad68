"""What a visitor sees of the site: the front page, a phone, the search, and no error in the log.

And the playground: Pyodide runs zkwire, from a server that only serves files.  Its logic is tested
in tests/unit/test_playground.py; here is what only a browser shows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tests.browser.chromium import LIMIT, SHOWN, browser, set_screen, wait
from tests.conftest import SEED

ACTIONS = 200
DRAWN = "document.getElementById('play-picture').shadowRoot"
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


# --- the playground -------------------------------------------------------------------------------


def played(driver: Any, root: str, lesson: str, width: int = 1200) -> None:
    """Open a link to a run, in a page of its own."""
    set_screen(driver, width)
    opened(driver, f"{root}/playground.html#lesson={lesson}")
    wait(driver)


def drawn(driver: Any) -> str:
    """The drawing as it is."""
    return str(driver.execute_script(f"return {DRAWN}?.innerHTML ?? ''"))


def test_the_playground_lands_at_what_fails(driver: Any, root: str) -> None:
    played(driver, root, "lost-reply&flags=--op+delete&at=fault")
    words = driver.find_element("id", "play-words").text
    assert "connection cut before the answer arrives" in words
    played(driver, root, "lost-reply")
    assert driver.find_element("id", "play-where").text.startswith("Step 1 of ")


def test_the_heads_of_the_lanes_stay_and_the_times_go_on(driver: Any, root: str) -> None:
    played(driver, root, "bug-herd&search=yes")
    assert "at the same time" in driver.find_element("id", "play-words").text
    box = driver.find_element("id", "play-picture")
    assert driver.execute_script("return arguments[0].scrollTop", box) > 0, "nothing has scrolled"
    top, above, names = driver.execute_script(
        f"""
        const heads = {DRAWN}.querySelector('.heads svg');
        return [heads.getBoundingClientRect().top, arguments[0].getBoundingClientRect().top,
                [...heads.querySelectorAll('text')].map(t => t.textContent)];
        """,
        box,
    )
    assert abs(top - above) < 3
    assert {"A", "B", "server"} <= set(names)
    times = driver.execute_script(
        f"return [...{DRAWN}.querySelectorAll('g > text.dim')]"
        ".map(t => t.textContent).filter(t => t.startsWith('+'))"
    )
    assert len(set(times)) > len(times) / 2
    assert float(times[-1]) > float(times[0])


def click(driver: Any, name: str) -> None:
    driver.execute_script("document.getElementById(`play-${arguments[0]}`).click()", name)


def frames(driver: Any) -> list[str]:
    """All drawings of the run, by stepping forward from the first."""
    click(driver, "first")
    found = [drawn(driver)]
    for _ in range(1, int(driver.find_element("id", "play-at").get_attribute("max"))):
        click(driver, "forward")
        found.append(drawn(driver))
    return found


def test_back_and_forward_show_the_same_frames(driver: Any, root: str) -> None:
    played(driver, root, "lost-reply&do=12,cut,A,0")
    forward = frames(driver)
    assert len(set(forward)) > len(forward) / 3  # words are no rows of the drawing
    back = [drawn(driver)]
    for _ in forward[1:]:
        click(driver, "back")
        back.append(drawn(driver))
    assert back[::-1] == forward
    opened(driver, driver.find_element("id", "play-link").get_attribute("href"))
    wait(driver)
    assert frames(driver) == forward


def test_random_actions_bring_no_error(driver: Any, root: str) -> None:
    from selenium.webdriver.support.select import Select

    chance = Random(SEED)
    played(driver, root, "handshake")
    buttons = ("first", "back", "forward", "forward", "forward", "last")
    for _ in range(ACTIONS):
        what = chance.random()
        runs = driver.execute_script(SHOWN)
        if what < 0.7:
            click(driver, chance.choice(buttons))
        elif what < 0.95:
            kind = chance.choice(("cut", "pause", "expire"))
            button = driver.find_element("id", f"play-{kind}")
            if not (button.is_displayed() and button.is_enabled()):
                continue  # a recipe with a mistake, or no client at this step
            clients = Select(driver.find_element("id", "play-client"))
            clients.select_by_index(chance.randrange(len(clients.options)))
            click(driver, kind)
            wait(driver, runs + 1)
        else:
            lessons = Select(driver.find_element("id", "play-lesson"))
            others = [n for n, o in enumerate(lessons.options) if not o.is_selected()]
            lessons.select_by_index(chance.choice(others))
            wait(driver, runs + 1)
        assert "<svg" in drawn(driver)
        assert driver.find_element("id", "play-status").text == ""
    assert driver.get_log("browser") == []


def test_edited_code_runs_and_its_mistake_is_told(driver: Any, root: str) -> None:
    played(driver, root, "handshake")
    runs = driver.execute_script(SHOWN)
    code = driver.find_element("id", "play-code")
    edit = "arguments[0].value = arguments[0].value.replace(arguments[1], arguments[2])"
    driver.execute_script(edit, code, "Who decides", "Who on Earth decides")
    click(driver, "run-code")
    wait(driver, runs + 1)
    assert "Who on Earth decides" in driver.find_element("id", "play-words").text
    driver.execute_script(edit, code, "async def lesson", "async deaf lesson")
    click(driver, "run-code")
    latest = time.monotonic() + LIMIT
    while "SyntaxError" not in driver.find_element("id", "play-status").text:
        assert time.monotonic() < latest
        time.sleep(0.02)


def test_the_explorer_finds_and_plays_a_bug(driver: Any, root: str) -> None:
    played(driver, root, "bug-herd")
    runs = driver.execute_script(SHOWN)
    click(driver, "search")
    wait(driver, runs + 1)
    assert "at the same time" in driver.find_element("id", "play-words").text
    click(driver, "first")
    assert "The explorer has found this" in driver.find_element("id", "play-words").text
    assert "search=yes" in driver.current_url


def test_the_arrow_keys_step(driver: Any, root: str) -> None:
    from selenium.webdriver.common.keys import Keys

    played(driver, root, "paused-holder")
    drawing = driver.find_element("id", "play-picture")
    drawing.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert driver.find_element("id", "play-where").text.startswith("Step 2 of ")


def test_on_a_phone_only_the_drawing_scrolls_sideways(driver: Any, root: str) -> None:
    played(driver, root, "paused-holder&at=27&do=12,cut,B,0", width=PHONE)
    edges = (
        "return [...document.querySelectorAll('#play *')]"
        ".map(part => part.getBoundingClientRect().right)"
    )
    assert max(driver.execute_script(edges)) <= PHONE
