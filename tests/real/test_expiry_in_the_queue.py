"""What a real server says to requests that wait in its queue when their session expires.

`tests/testbed/test_server.py` has the twin of it, on the server for tests.
"""

from __future__ import annotations

import pytest

from tests.support.differential_sides import RealLink
from tests.support.embedded import multi_body
from tests.support.queued_requests import queued_requests, refused_in_the_queue
from tests.support.server_control import Backend, Settings
from zkwire import ACL, OPEN_ACL_UNSAFE, Client, Id, Perms
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.wire import ops

TIMEOUT = 1000
"""Milliseconds: the requests must be on the way before, and executed later."""
LONG_ACL = [ACL(Perms.READ, Id("digest", f"user:{n}")) for n in range(4_000)]
"""A server goes through all of it before it lets anyone read."""
BUSY = multi_body(*[(ops.CHECK, r.CheckVersionRequest("/slow", -1))] * 1_000)
MOST = 512
SETTINGS = Settings(java_flags=("-Dzookeeper.nio.sessionlessCnxnTimeout=600000",))
"""Else the server closes a connection that has waited for a session timeout and some seconds."""


def greeting(timeout: int) -> bytes:
    return frame(r.ConnectRequest(0, 0, timeout, 0, bytes(16), False).encode())


def expire_in_the_queue(host: str, port: int, multis: int) -> list[bytes]:
    """The answers to requests behind so many slow ones of another session, without the end."""
    other, mine = RealLink(host, port), RealLink(host, port)
    other.exchange(greeting(30_000), 1)
    mine.exchange(greeting(TIMEOUT), 1)
    body = r.RequestHeader(1, ops.MULTI.opcode).encode() + BUSY
    other.exchange(frame(body) * multis, 0)
    found = mine.exchange(queued_requests("/queued"), None)
    assert found.pop() == b""
    for link in (other, mine):
        link.close()
    return found


@pytest.mark.apache
@pytest.mark.since("3.6")  # multi_read
def test_what_waits_in_the_queue_of_an_expired_session_is_refused(backend: Backend) -> None:
    with (
        backend.standalone(SETTINGS) as server,
        Client(server.hosts, session_timeout=60, operation_timeout=60) as client,
    ):
        client.create("/slow", acl=[*LONG_ACL, *OPEN_ACL_UNSAFE])
        multis = 8
        # How long a server takes for them is the machine's matter.
        while not refused_in_the_queue(expire_in_the_queue(server.host, server.port, multis)):
            multis *= 2
            assert multis <= MOST, "the session never expired before its requests were executed"
        assert client.exists("/queued") is None
