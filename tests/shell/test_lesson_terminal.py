"""A lesson at a terminal: it waits at each question, and the reader can look up signs and leave."""

from contextlib import suppress
from subprocess import TimeoutExpired

import pytest

from tests.support.terminal import ZKWIRE, Terminal

PROMPT = "q: leave] "


def lesson(*words: str) -> Terminal:
    return Terminal(*ZKWIRE, "lesson", *words, "--color", "never")


def test_each_question_waits_for_its_answer() -> None:
    with lesson("handshake") as terminal:
        for question in ("Who decides what it gets?", "Does anything travel?", "or more?"):
            shown = terminal.until(PROMPT)
            assert f"{question}\r\n" in shown
            assert "✓" not in shown.rpartition(question)[2]
            terminal.type("my guess\r")
        assert terminal.status() == 0
    assert "Next: zkwire lesson heartbeat" in terminal.seen
    assert max(map(len, terminal.lines)) <= 80


def test_the_signs_can_be_called_up_and_the_question_waits_on() -> None:
    with lesson("lost-reply") as terminal:
        terminal.until(PROMPT)
        terminal.type("?\r")
        assert "the connection breaks\r\n" in terminal.until(PROMPT)
        terminal.type("\r")
        assert "A raised OutcomeUnknownError" in terminal.until(PROMPT)


@pytest.mark.parametrize(("keys", "status"), [("q\r", 0), ("\x04", 0), ("", 130)])
def test_a_reader_who_leaves_is_no_failure(keys: str, status: int) -> None:
    """At the question; an interrupt ends it as it ends other commands."""
    with lesson("handshake") as terminal:
        terminal.until(PROMPT)
        terminal.type(keys)
        while not keys and terminal.process.poll() is None:
            terminal.interrupt()
            with suppress(TimeoutExpired):
                terminal.process.wait(1.0)
        assert terminal.status() == status
    assert "Remember" not in terminal.seen
    assert "Traceback" not in terminal.seen


@pytest.mark.parametrize("option", ["--fast", "--play"])
def test_a_film_waits_nowhere(option: str) -> None:
    with lesson("connected-is-not-ready", option) as terminal:
        assert terminal.status() == 0
    assert "Remember:" in terminal.seen
    assert PROMPT not in terminal.seen
