"""The playground in a browser: Pyodide runs zkwire, from a server that only serves files.

The logic is tested in tests/unit/test_playground.py; here is what only a browser shows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tests.browser.chromium import LIMIT, SHOWN, browser, wait
from tests.conftest import SEED

ACTIONS = 200
DRAWN = "return document.getElementById('play-picture').shadowRoot?.innerHTML ?? ''"


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[Any]:
    with browser(address) as driver:
        wait(driver)
        yield driver


def opened(driver: Any, link: str) -> None:
    """Open a link to a run, in a page of its own."""
    driver.get("about:blank")
    driver.get(link)
    wait(driver)


def click(driver: Any, name: str) -> None:
    driver.execute_script("document.getElementById(`play-${arguments[0]}`).click()", name)


def frames(driver: Any) -> list[str]:
    """All drawings of the run, by stepping forward from the first."""
    click(driver, "first")
    found = [driver.execute_script(DRAWN)]
    for _ in range(1, int(driver.find_element("id", "play-at").get_attribute("max"))):
        click(driver, "forward")
        found.append(driver.execute_script(DRAWN))
    return found


def test_back_and_forward_show_the_same_frames(page: Any, address: str) -> None:
    opened(page, f"{address}#lesson=lost-reply&do=12,cut,A,0")
    forward = frames(page)
    assert len(set(forward)) > len(forward) / 3  # words are no rows of the drawing
    back = [page.execute_script(DRAWN)]
    for _ in forward[1:]:
        click(page, "back")
        back.append(page.execute_script(DRAWN))
    assert back[::-1] == forward
    opened(page, page.find_element("id", "play-link").get_attribute("href"))
    assert frames(page) == forward


def test_random_actions_bring_no_error(page: Any, address: str) -> None:
    from selenium.webdriver.support.select import Select

    chance = Random(SEED)
    opened(page, address)
    buttons = ("first", "back", "forward", "forward", "forward", "last")
    for _ in range(ACTIONS):
        what = chance.random()
        runs = page.execute_script(SHOWN)
        if what < 0.7:
            click(page, chance.choice(buttons))
        elif what < 0.95:
            kind = chance.choice(("cut", "pause", "expire"))
            button = page.find_element("id", f"play-{kind}")
            if not (button.is_displayed() and button.is_enabled()):
                continue  # a recipe with a mistake, or no client at this step
            clients = Select(page.find_element("id", "play-client"))
            clients.select_by_index(chance.randrange(len(clients.options)))
            click(page, kind)
            wait(page, runs + 1)
        else:
            lessons = Select(page.find_element("id", "play-lesson"))
            others = [n for n, o in enumerate(lessons.options) if not o.is_selected()]
            lessons.select_by_index(chance.choice(others))
            wait(page, runs + 1)
        assert "<svg" in page.execute_script(DRAWN)
        assert page.find_element("id", "play-status").text == ""
    assert page.get_log("browser") == []


def test_edited_code_runs_and_its_mistake_is_told(page: Any, address: str) -> None:
    opened(page, f"{address}#lesson=handshake")
    runs = page.execute_script(SHOWN)
    code = page.find_element("id", "play-code")
    edit = "arguments[0].value = arguments[0].value.replace(arguments[1], arguments[2])"
    page.execute_script(edit, code, "Who decides", "Who on Earth decides")
    click(page, "run-code")
    wait(page, runs + 1)
    assert "Who on Earth decides" in page.find_element("id", "play-words").text
    page.execute_script(edit, code, "async def lesson", "async deaf lesson")
    click(page, "run-code")
    latest = time.monotonic() + LIMIT
    while "SyntaxError" not in page.find_element("id", "play-status").text:
        assert time.monotonic() < latest
        time.sleep(0.02)


def test_the_explorer_finds_and_plays_a_bug(page: Any, address: str) -> None:
    opened(page, f"{address}#lesson=bug-herd")
    runs = page.execute_script(SHOWN)
    click(page, "search")
    wait(page, runs + 1)
    assert "at the same time" in page.find_element("id", "play-words").text
    click(page, "first")
    assert "The explorer has found this" in page.find_element("id", "play-words").text
    assert "search=yes" in page.current_url


def test_the_arrow_keys_step(page: Any, address: str) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(page, f"{address}#lesson=paused-holder")
    drawing = page.find_element("id", "play-picture")
    drawing.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert page.find_element("id", "play-where").text.startswith("Step 2 of ")


def test_on_a_phone_only_the_drawing_scrolls_sideways(address: str) -> None:
    with browser(f"{address}#lesson=paused-holder&at=27&do=12,cut,B,0", width=400) as phone:
        wait(phone)
        edges = (
            "return [...document.querySelectorAll('#play *')]"
            ".map(part => part.getBoundingClientRect().right)"
        )
        assert max(phone.execute_script(edges)) <= 400
