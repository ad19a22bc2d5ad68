"""A lesson at a terminal: it waits at each question, and the reader can look up signs and leave."""

from __future__ import annotations

from contextlib import suppress
from subprocess import TimeoutExpired

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


def test_a_reader_who_leaves_is_no_failure() -> None:
    for keys in ("q\r", "\x04"):
        with lesson("handshake") as terminal:
            terminal.until(PROMPT)
            terminal.type(keys)
            assert terminal.status() == 0
        assert "Remember" not in terminal.seen
        assert "Traceback" not in terminal.seen


def test_an_interrupt_at_a_question_ends_it() -> None:
    with lesson("handshake") as terminal:
        terminal.until(PROMPT)
        while terminal.process.poll() is None:
            terminal.interrupt()
            with suppress(TimeoutExpired):
                terminal.process.wait(1.0)
        assert terminal.status() == 130
    assert "Traceback" not in terminal.seen


def test_a_film_waits_nowhere() -> None:
    with lesson("connected-is-not-ready", "--fast") as terminal:
        assert terminal.status() == 0
    with lesson("connected-is-not-ready", "--play") as terminal:
        assert terminal.status() == 0
        assert "Remember:" in terminal.seen
        assert PROMPT not in terminal.seen
