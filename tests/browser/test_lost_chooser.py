"""The chooser of connection-loss-reference.md in a browser: its choices lead to the lines.

The page is opened from the disk, as a reader may, so nothing can come from elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import browser
from tests.connection_loss import data

ROWS = json.loads(data.PATH.read_text())["rows"]


@pytest.fixture(scope="module")
def page(site: Path) -> Path:
    return site / "connection-loss-reference.html"


@pytest.fixture(scope="module")
def wide(page: Path) -> Iterator[Any]:
    with browser(page) as driver:
        yield driver


def found(driver: Any) -> list[str]:
    """The names of the lines that are shown."""
    script = "return [...document.querySelectorAll('.lost-card li > a')].map(a => a.hash.slice(1))"
    return list(driver.execute_script(script))


def choose(driver: Any, **choices: str) -> None:
    """Begin anew, and choose by the values of the lists."""
    from selenium.webdriver.support.select import Select

    driver.get(driver.current_url.partition("#")[0])
    for name, value in choices.items():
        Select(driver.find_element("id", f"lost-{name}")).select_by_value(value)


def test_each_line_of_the_data_has_its_line_in_the_page(wide: Any) -> None:
    script = (
        "return arguments[0].map(id => document.getElementById(id)?.closest('tr')?.innerText ?? '')"
    )
    lines = wide.execute_script(script, [row["id"] for row in ROWS])
    for row, line in zip(ROWS, lines, strict=True):
        for text in (row["point"], row["server"], row["client"], row["end"]):
            assert plain(text or "") in plain(line), row["id"]


def plain(text: str) -> str:
    """Its words, without marks and quotes."""
    return " ".join(re.findall(r"\w+", text))


def test_choices_narrow_each_other_to_the_one_line(wide: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    choose(wide, call="operations create", errors="OutcomeUnknownError", failure="reply-lost")
    ways = [row for row in ROWS if row["call"] == "create" and row["failure"] == "reply-lost"]
    assert found(wide) == [row["id"] for row in ways]
    choose(
        wide,
        call="operations create",
        options="ephemeral and sequential",
        errors="OutcomeUnknownError",
        failure="reply-lost",
    )
    (row,) = [row for row in ways if row["options"] == "ephemeral and sequential"]
    assert found(wide) == [row["id"]]
    advice = wide.find_element("class name", "lost-advice").text
    assert advice.lower() == row["advice"].replace("`", "").replace("**", "").lower()
    # Not by the pointer: the theme scrolls smoothly, so where a link is depends on the time.
    wide.find_element("css selector", ".lost-card li > a").send_keys(Keys.ENTER)
    target = wide.execute_script("return document.querySelector(':target').id")
    assert target == row["id"]


def test_a_read_and_its_watch_are_two_calls(wide: Any) -> None:
    choose(wide, call="watches exists", failure="server-behind")
    (name,) = found(wide)
    assert name == "watch-exists-no-node--changed-and-moved-to-a-server-that-is-behind"


def test_the_keyboard_is_enough(wide: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    choose(wide)
    wide.find_element("id", "lost-call").send_keys("dele")
    for _ in range(4):
        wide.switch_to.active_element.send_keys(Keys.TAB)
        if wide.switch_to.active_element.get_attribute("id") == "lost-words":
            break
    wide.switch_to.active_element.send_keys("reply BEHIND")
    assert found(wide) == []
    status = wide.find_element("class name", "lost-status")
    assert ("No line fits" in status.text, status.aria_role) == (True, "status")
    wide.switch_to.active_element.send_keys(*[Keys.BACKSPACE] * len("reply BEHIND"), "behind")
    assert found(wide) == ["delete--applied-then-moved-to-a-server-that-is-behind"]
    wide.switch_to.active_element.send_keys(Keys.TAB)
    wide.switch_to.active_element.send_keys(Keys.ENTER)  # on the button that clears
    assert wide.find_element("id", "lost-words").get_attribute("value") == ""


def test_on_a_phone_nothing_is_wider_than_the_screen(page: Path) -> None:
    with browser(page, width=390) as phone:
        choose(phone, failure="server-behind")
        assert len(found(phone)) > 20
        # The page itself may clip what is too wide, so each part is asked.
        edges = (
            "return [...document.querySelectorAll('#lost, #lost *:not(option, optgroup)')]"
            ".map(part => part.getBoundingClientRect().right)"
        )
        assert max(phone.execute_script(edges)) <= 390


def test_without_scripts_there_are_the_tables_alone(page: Path) -> None:
    with browser(page, scripts=False) as driver:
        assert not driver.find_element("id", "lost").is_displayed()
        assert driver.find_element("id", ROWS[0]["id"]).is_displayed()


def test_a_line_says_how_to_run_it(wide: Any) -> None:
    choose(wide, call="operations delete")
    lines = wide.find_elements("css selector", ".lost-card li")
    links = [line.find_elements("css selector", "dd a") for line in lines]
    hrefs = [
        link[0].get_attribute("href").partition("/playground.html")[2] for link in links if link
    ]
    assert "#lesson=lost-reply&flags=--op+delete&at=fault" in hrefs
    repeated = [line.text for line, link in zip(lines, links, strict=True) if not link]
    assert repeated
    assert all("python3 -m tests.connection_loss" in text for text in repeated)
