"""The lessons: each runs with each of its flags, and fails when the client has the bug it is about.

No server, no socket: a lesson is its own test, by what it expects.  What "See it happen" of
docs/connection-loss-reference.md quotes is what its commands say.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.connection_loss import data
from tests.connection_loss.document import LESSON, PATH, flags_of
from tests.support.pictures import lesson_drawn, lesson_says
from zkwire.cli.lessons.lesson import TABLE, find
from zkwire.cli.main import main
from zkwire.jute.records import CreateRequest
from zkwire.recipes._lock import AsyncPathLock
from zkwire.recipes.sequential import AsyncSequentialLock, before
from zkwire.session.handshake import Authentication, Identity
from zkwire.session.liveness import Liveness
from zkwire.session.watch_table import WatchTable
from zkwire.testing.server import sessions
from zkwire.testing.server.sessions import Session

SAMPLES = {
    "--want": ["1ms", "1h"],
    "--tick": ["100ms"],
    "--writes": ["10"],
    "--waiters": ["4"],
    "--pause": ["3s"],
}


def variants() -> Iterator[tuple[str, ...]]:
    """Each lesson, and each with each of its flags."""
    for name in TABLE:
        yield (name,)
        for flag in find(name).flags:
            if flag.kind is None and flag.choices is None:
                yield name, flag.name
            for value in flag.choices or (SAMPLES[flag.name] if flag.kind else ()):
                yield name, flag.name, value


@pytest.mark.parametrize("words", list(variants()), ids=" ".join)
def test_a_lesson_is_as_it_expects(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    few = ["--waiters", "8"] if "herd" in words and "--waiters" not in words else []
    status = main(["lesson", *words, *few, "--fast"])
    shown = capsys.readouterr().out
    assert status == 0, shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "Remember:" in shown
    assert "✓" in shown


@pytest.mark.parametrize("name", sorted(TABLE.keys() - {"herd"}))  # the slowest
def test_a_drawing_is_xml_that_needs_nothing_from_elsewhere(name: str) -> None:
    text = lesson_drawn(name)
    ElementTree.fromstring(text)
    assert "<script" not in text
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}


def test_without_unicode_the_signs_are_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.TextIOWrapper(io.BytesIO(), "ascii")  # strict: another character is an error
    monkeypatch.setattr("sys.stdout", output)
    assert main(["lesson", "watch-gap", "--color", "never"]) == 0
    output.seek(0)
    assert "|<o-" in output.read()


def test_no_output_has_a_password(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    passwords = list[bytes]()

    class Opened(Session):
        def __init__(self, session_id: int, passwd: bytes, timeout: int, *, local: bool) -> None:
            passwords.append(passwd)
            super().__init__(session_id, passwd, timeout, local=local)

    monkeypatch.setattr(sessions, "Session", Opened)
    page = tmp_path / "page"
    shown = ""
    for name in ("handshake", "session-move", "connected-is-not-ready"):
        assert main(["lesson", name, "--bytes", "--svg", str(page)]) == 0
        shown += capsys.readouterr().out + page.read_text()
    assert passwords
    assert "ann:" not in shown
    assert b"ann:".hex() not in shown
    assert "•••" in shown
    assert [p for p in passwords if p.hex() in shown or repr(p)[2:-1] in shown] == []


def test_the_legend_says_what_each_sign_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lesson", "--legend"]) == 0
    said = capsys.readouterr().out
    assert [sign for sign in "├◀◇┴■▼▲●○◆✓✗" if sign not in said] == []
    assert {"xid", "zxid", "45 B"} <= {line[:6].strip() for line in said.splitlines()}


# --- the lessons of a lost connection -------------------------------------------------------------

SECTION = PATH.read_text().partition("\n## See it happen\n")[2].partition("\n## ")[0]
SHOWN = re.findall(r"^\| (.+) \| (.+) \| `zkwire (.+)` \| \*(.+)\* \|$", SECTION, re.MULTILINE)


def test_each_line_and_each_point_of_failure_has_a_lesson_that_runs() -> None:
    rows = json.loads(data.PATH.read_text())["rows"]
    linked = {row["id"]: flags for row in rows if (flags := flags_of(row)) is not None}
    assert len(linked) == 16  # four requests, four faults
    for name, flags in linked.items():
        shown = lesson_says(LESSON, *flags.split())
        assert "Remember:" in shown, name
        assert "✗" not in shown, name
    points = {row["point"] for row in rows if row["part"] == "operations"}
    without = set(re.findall(r"\*([^*|]+)\*", " ".join(SECTION.partition("| ---")[0].split())))
    assert points == {row[0] for row in SHOWN} - {"cut off"} | without


# --- planted bugs ---------------------------------------------------------------------------------


def _timeout_is_what_was_asked_for(self: Any, timeout: float, *, read_only: bool = False) -> None:
    self.answered(self._opened, self._opened)


async def _look_for_nothing(*_: object) -> list[str]:
    return []


def _the_first(_: AsyncSequentialLock, names: list[str], own: str) -> list[tuple[int, str]]:
    ahead = before(names, own)
    return [min(ahead)] * 2 if ahead else []  # the event alone does not decide


_greeting, _create, _restart = Identity.greeting, CreateRequest.pack, Authentication.restart
_told = set[int]()


def _only_once(self: Authentication) -> list[bytes]:
    frames = [] if id(self) in _told else _restart(self)
    _told.add(id(self))
    return frames


PLANTED: dict[str, tuple[object, str, object]] = {
    "handshake": (Liveness, "greeted", _timeout_is_what_was_asked_for),
    "heartbeat": (Liveness, "lease_deadline", property(lambda _: 1e9)),
    "watch-gap": (WatchTable, "frames", lambda *_: ()),
    "lost-reply": (AsyncSequentialLock, "_find", _look_for_nothing),
    "herd": (AsyncSequentialLock, "_ahead", _the_first),
    "session-move": (Identity, "greeting", lambda self, _, **named: _greeting(self, 0, **named)),
    "paused-holder": (AsyncPathLock, "_lasts", property(lambda self: not self.lost.is_set())),
    "connected-is-not-ready": (Authentication, "restart", _only_once),
    "bytes": (CreateRequest, "pack", lambda *fields: _create(*fields)[:-1] + b"\2"),
}
WORDS = {"handshake": ["--want", "100ms"], "herd": ["--waiters", "4"]}


@pytest.mark.parametrize("name", TABLE)
def test_a_lesson_fails_with_the_bug_that_it_is_about(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*PLANTED[name])
    assert main(["lesson", name, "--fast", *WORDS.get(name, [])]) == 1
    assert "✗" in capsys.readouterr().out
