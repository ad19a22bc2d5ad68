"""The lines between the atlas and the program of a client."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.atlas.driver import Driver

PROGRAM = """
import sys
print("ready 1.0", flush=True)
for line in sys.stdin:
    number, session, command, *words = line.split()
    if command == "say":
        print("*", session, "state", words[0])
        print(number, "ok", "read from 127.0.0.1:1234")
    elif command == "fail":
        print(number, "error", "NoNodeError")
    elif command == "none":
        print(number, "lacks")
    elif command == "end":
        break
    sys.stdout.flush()
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with Driver([sys.executable, "-c", PROGRAM], tmp_path / "log", {}) as made:
        yield made


def test_answer_follows_what_was_told(driver: Driver) -> None:
    assert driver.version == "1.0"
    answer = driver.ask("a", "say", "LOST", limit=30.0)
    assert (answer.words, answer.text, answer.lacks) == (
        "ok read from ADDRESS",
        "read from ADDRESS",
        False,
    )
    told = driver.wait_told(lambda one: one.session == "a", 0.0)
    assert told is not None
    assert (told.what, told.words) == ("state", "LOST")
    assert driver.wait_told(lambda one: one.session == "b", 0.0) is None


def test_error_lack_and_silence_are_told_apart(driver: Driver) -> None:
    assert driver.ask("a", "fail", limit=30.0).words == "NoNodeError"
    assert driver.ask("a", "none", limit=30.0).lacks
    silent = driver.start("a", "silence")
    driver.ask("a", "fail", limit=30.0)
    assert silent.wait(0.0).words is None


def test_end_of_the_process_is_no_answer(driver: Driver) -> None:
    assert driver.wait_told(lambda one: False, 0.0) is None
    call = driver.start("a", "end")
    driver.process.wait(30.0)
    assert driver.wait_told(lambda one: False, 30.0) is None
    assert driver.ended_at is not None
    assert call.wait(0.0).words is None
    assert driver.start("a", "say", "x").wait(0.0).words is None
