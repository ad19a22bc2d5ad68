"""The demo holds what it claims; a lesson at a terminal waits at each question."""

from __future__ import annotations

from contextlib import suppress
from subprocess import TimeoutExpired

import pytest

from tests.support.command import ended
from tests.support.terminal import ZKWIRE, Terminal
from zkwire import __version__ as zkwire_version


def test_a_demo_needs_nothing_and_checks_everything() -> None:
    """For a terminal of 80 columns, without colour."""
    done = ended("demo")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout
    assert "11 of 11 checks passed" in done.stdout


def test_what_is_not_run_is_said() -> None:
    assert ended("demo", "--nonsense").returncode == 2
    assert ended("--version").stdout == f"zkwire {zkwire_version}\n"


# --- a lesson at a terminal -----------------------------------------------------------------------

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
