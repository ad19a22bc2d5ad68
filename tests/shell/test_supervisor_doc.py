"""The examples of docs/supervisor.md run as they stand, and survive a killed session."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import pytest

from tests.support.lock_helpers import PATIENCE, Running
from tests.support.server_control import poll
from tests.support.snippets import blocks
from tests.support.supervisor_helpers import kill
from zkwire import Client, NodeExistsError, Queue
from zkwire.testing import Server

LONGEST = 10
"""Lines of an example, without imports and blank ones."""


class EndError(Exception):
    """Raised by an example's print, to end it."""


class Program:
    """An example that runs, and what it has printed."""

    def __init__(self, block: str) -> None:
        self.printed = defaultdict[str, list[Any]](list)
        self.end = threading.Event()
        names = {"print": self.print, "input": lambda _: self.end.wait()}
        self.running = Running(lambda: exec(block, names))

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


def numbered(what: str) -> Callable[[Program, Server, Client], None]:
    """It prints a number, another one after its session is killed."""

    def check(program: Program, server: Server, client: Client) -> None:
        printed = program.printed[what]
        until(f"{what} the first", lambda: printed)
        kill_the_others(server, client)
        until(f"{what} another", lambda: len(set(printed)) == 2)
        program.end.set()
        kill_the_others(server, client)

    return check


def told(what: str, tell: Callable[[Client, bytes], object]) -> Callable[..., None]:
    """It prints what it is told, also after its session is killed."""

    def check(program: Program, server: Server, client: Client) -> None:
        printed = program.printed[what]
        for data in (b"1", b"2"):
            tell(client, data)
            until("it is seen", lambda data=data: printed[-1:] == [data])  # type: ignore[misc]
            kill_the_others(server, client)
        program.end.set()
        tell(client, b"3")

    return check


def configure(client: Client, data: bytes) -> None:
    with suppress(NodeExistsError):
        client.create("/config", data)
    client.set_data("/config", data)


leading, each_session = numbered("leading, with the fence"), numbered("a new session:")
working = told("working on", lambda client, data: Queue(client, "/jobs").put(data))


def configured(program: Program, server: Server, client: Client) -> None:
    until("no node", lambda: None in program.printed["the configuration is"])
    told("the configuration is", configure)(program, server, client)


def all_of_them(program: Program, server: Server, client: Client) -> None:
    terms = program.printed["leading, with the fence"]
    registered(program, server, client)
    until("another term", lambda: len(set(terms)) > 1)
    configured(program, server, client)


CHECKS = (registered, leading, configured, working, all_of_them, each_session)


@pytest.mark.parametrize(("number", "check"), [*enumerate(CHECKS)])
def test_an_example_survives_a_killed_session(
    number: int, check: Callable[[Program, Server, Client], None], server: Server
) -> None:
    program = Program(blocks("supervisor", server.hosts)[number])
    with Client(server.hosts) as client:
        check(program, server, client)
        program.end.set()
        with nullcontext() if check is registered else pytest.raises(EndError):
            program.running.result()
    lines = [
        line for line in blocks("supervisor")[number].splitlines() if line and "import" not in line
    ]
    assert number > 2 or len(lines) <= LONGEST
