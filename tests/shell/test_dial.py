"""Below the clients: an attempt to reach a server, driven by hand, and what the kernel takes."""

from __future__ import annotations

import select
import selectors
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zkwire.net.connection import Connection
from zkwire.net.dial import Dialer

if TYPE_CHECKING:
    from zkwire.session.hosts import Address

PATIENCE = 30.0


@pytest.fixture
def listening() -> Iterator[list[Address]]:
    """Two addresses at which connections are accepted."""
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        yield [(socket.AF_INET, server.getsockname()) for server in servers]


@pytest.fixture
def refusing() -> Address:
    """An address at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return socket.AF_INET, server.getsockname()


class Attempt:
    """A dialer of a name that has these addresses; the test is its selector and its clock."""

    def __init__(self, addresses: list[Address], first: Address | None = None) -> None:
        self._sock: socket.socket | None = None
        found: Any = SimpleNamespace(found=list(addresses), used=False)
        target = "zoo.example", 2181
        self.dialer = Dialer(target, lambda _: found, self._listen, None, list, first)

    def _listen(self, _: object, sock: socket.socket, events: int) -> None:
        self._sock = sock if events else None

    def go_on(self) -> Dialer:
        """Do as a selector does, until the attempt has ended."""
        while self.dialer.connected is None and self.dialer.failure is None:
            self.dialer.advance(0.0, 10.0)
            if self._sock is not None:
                select.select((), (self._sock,), (), PATIENCE)
                self.dialer.ready(selectors.EVENT_WRITE)
        return self.dialer


def test_every_address_is_tried(listening: list[Address], refusing: Address) -> None:
    dialer = Attempt([refusing, refusing, listening[0]]).go_on()
    assert dialer.address == listening[0]
    assert dialer.connected is not None
    dialer.cancel()
    assert Attempt([refusing, refusing]).go_on().failure == "Connection refused"


def test_addresses_share_the_time(listening: list[Address]) -> None:
    dialer = Attempt(listening).dialer
    assert dialer.advance(0.0, 10.0) == 5.0
    assert dialer.address == listening[0]
    assert dialer.advance(5.0, 10.0) == 10.0, "nobody has told it of an answer"
    assert dialer.address == listening[1]
    dialer.cancel()


def test_the_next_attempt_begins_behind_the_address_that_was_reached(
    listening: list[Address],
) -> None:
    first = Attempt(listening).go_on()
    assert first.following == listening[1]
    first.cancel()
    second = Attempt(listening, first.following).go_on()
    assert (second.address, second.following) == (listening[1], listening[0])
    second.cancel()


def test_what_the_kernel_has_taken_is_known_to_the_byte() -> None:
    here, there = socket.socketpair()
    with here, there:
        connection, data = Connection(here), bytes(10_000_000)
        connection.written += len(data)
        connection.send(data)
        assert 0 < connection.written < len(data)
        assert len(connection.backlog) == len(data) - connection.written
        here.shutdown(socket.SHUT_WR)
        received = 0
        while piece := there.recv(1_000_000):
            received += len(piece)
        assert received == connection.written
