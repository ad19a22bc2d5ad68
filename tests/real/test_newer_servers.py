"""What real servers do that depends on their release, or that it could: throttling, quotas, ids."""

from __future__ import annotations

import pytest

from tests.real.test_real_servers import Handshake
from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import Backend, Settings, ZooKeeperServer
from zkwire import Client, QuotaExceededError, ThrottledOpError

pytestmark = pytest.mark.apache

SECRET = 0xB3415C00
_MULTIPLIER, _MASK = 0x5DEECE66D, (1 << 48) - 1


def derived(session_id: int) -> bytes:
    """The password that servers make of a session's id: numbers of `java.util.Random`."""
    state = (session_id ^ SECRET ^ _MULTIPLIER) & _MASK
    made = b""
    while len(made) < 16:
        state = (state * _MULTIPLIER + 0xB) & _MASK
        made += (state >> 16).to_bytes(4, "little")
    return made


def test_a_password_is_a_function_of_the_id(zookeeper: ZooKeeperServer) -> None:
    """True of 3.4.14, 3.6.2, 3.8.0 and 3.9.5: with the id alone the session can be taken over."""
    with Handshake(zookeeper) as client:
        assert client.password == derived(client.session_id)
        with client.resumed(zookeeper) as again:
            assert again.session_id == client.session_id


@pytest.mark.since("3.9")
def test_a_request_that_waits_too_long_is_throttled_and_not_executed(backend: Backend) -> None:
    flags = (
        "request_throttle_max_requests=1",
        "request_throttle_stall_time=5",
        "throttled_op_wait_time=1",
    )
    settings = Settings(java_flags=tuple(f"-Dzookeeper.{flag}" for flag in flags))
    with backend.standalone(settings) as server, Client(server.hosts) as client:
        client.create("/n")
        throttled: list[ThrottledOpError] = []
        replies = [client.pipeline.set_data("/n", b"") for _ in range(1000)]
        for reply in replies:
            try:
                reply.result(PATIENCE)
            except ThrottledOpError as error:
                throttled.append(error)
        assert throttled
        assert not any(error.maybe_applied for error in throttled)
        stat = client.exists("/n")
        assert stat is not None
        assert stat.version == len(replies) - len(throttled)


@pytest.mark.since("3.7")
def test_a_quota_is_enforced(backend: Backend) -> None:
    settings = Settings(java_flags=("-Dzookeeper.enforceQuota=true",))
    with backend.standalone(settings) as server, Client(server.hosts) as client:
        client.create("/n")
        client.ensure_path("/zookeeper/quota/n")
        client.create("/zookeeper/quota/n/zookeeper_stats", b"count=1,bytes=0")
        limits = b"count=-1,bytes=-1;byteHardLimit=-1;countHardLimit=2"
        client.create("/zookeeper/quota/n/zookeeper_limits", limits)
        client.create("/n/a")
        with pytest.raises(QuotaExceededError):
            client.create("/n/b")
        assert client.get_children("/n") == ["a"]
