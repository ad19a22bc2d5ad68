"""A connection without a client: what the kernel takes of what is sent."""

from __future__ import annotations

import socket

from zkwire.net.connection import Connection


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
