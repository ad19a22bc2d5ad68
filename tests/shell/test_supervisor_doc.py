"""The examples of docs/supervisor.md run as they stand, and survive a killed session."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.lock_helpers import PATIENCE, Running
from tests.support.server_control import poll
from tests.support.supervisor_helpers import kill
from zkwire import Client, Queue
from zkwire.testing import Server

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "supervisor.md").read_text(), re.DOTALL
)
LONGEST = 10
"""Lines of an example, without imports and blank ones."""


class EndError(Exception):
    """Raised by an example's print, to end it."""


class Program:
    """An example that runs, and what it has printed."""

    def __init__(self, block: str, server: Server) -> None:
        self.fences: list[int] = []
        self.seen: list[bytes | None] = []
        self.sessions: list[int] = []
        self.worked: list[bytes] = []
        self.printed: dict[str, list[Any]] = {
            "leading, with the fence": self.fences,
            "the configuration is": self.seen,
            "a new session:": self.sessions,
            "working on": self.worked,
            "the session has ended:": [],
        }
        self.end = threading.Event()
        names = {"print": self.print, "input": lambda _: self.end.wait()}
        self.running = Running(lambda: exec(block.replace("127.0.0.1:2181", server.hosts), names))

    def print(self, words: str, value: object) -> None:
        self.printed[words].append(value)
        if self.end.is_set():
            raise EndError


def until(what: str, look: Callable[[], object]) -> None:
    poll(what, lambda: look() or None, PATIENCE)


def kill_the_others(server: Server, mine: Client) -> None:
    for session in list(server.sessions):
        if session.session_id != mine.session_id:
            kill(server, session.session_id)


def registered(program: Program, server: Server, client: Client) -> None:
    def owner() -> Any:
        stat = client.exists("/services/db")
        return stat and stat.ephemeral_owner

    until("the node", owner)
    before = owner()
    kill_the_others(server, client)
    until("another node", lambda: owner() not in (None, before))


def leading(program: Program, server: Server, client: Client) -> None:
    until("a term", lambda: program.fences)
    kill_the_others(server, client)
    until("another term", lambda: len(set(program.fences)) == 2)


def configured(program: Program, server: Server, client: Client) -> None:
    until("no node", lambda: None in program.seen)
    client.create("/config", b"1")
    until("the first", lambda: program.seen[-1] == b"1")
    kill_the_others(server, client)
    client.set_data("/config", b"2")
    until("the second", lambda: program.seen[-1] == b"2")
    program.end.set()
    client.set_data("/config", b"3")


def working(program: Program, server: Server, client: Client) -> None:
    queue = Queue(client, "/jobs")
    queue.put(b"1")
    until("the first", lambda: program.worked == [b"1"])
    kill_the_others(server, client)
    queue.put(b"2")
    until("the second", lambda: program.worked[-1] == b"2")
    program.end.set()
    queue.put(b"3")


def all_of_them(program: Program, server: Server, client: Client) -> None:
    for each in (registered, leading, configured):
        each(program, server, client)


@pytest.mark.parametrize(
    ("number", "check", "ended_by"),
    [
        (0, registered, None),
        (1, leading, EndError),
        (2, configured, EndError),
        (3, working, EndError),
        (4, all_of_them, EndError),
    ],
    ids=["register", "lead", "configure", "work", "asyncio"],
)
def test_an_example_survives_a_killed_session(
    number: int,
    check: Callable[[Program, Server, Client], None],
    ended_by: type[Exception] | None,
    server: Server,
) -> None:
    program = Program(BLOCKS[number], server)
    with Client(server.hosts) as client:
        check(program, server, client)
        program.end.set()
        if ended_by is None:
            program.running.result()
        else:
            with pytest.raises(ended_by):
                program.running.result()


def test_the_example_of_each_session(server: Server) -> None:
    program = Program(BLOCKS[5], server)
    with Client(server.hosts) as client:
        until("a session", lambda: program.sessions)
        kill_the_others(server, client)
        until("another", lambda: len(set(program.sessions)) == 2)
        program.end.set()
        kill_the_others(server, client)
    with pytest.raises(EndError):
        program.running.result()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_examples_are_short(number: int) -> None:
    lines = [line for line in BLOCKS[number].splitlines() if line and "import" not in line]
    assert len(lines) <= LONGEST
