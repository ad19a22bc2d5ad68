"""The servers of the tests themselves: they answer, die, freeze and come back as ordered."""

from __future__ import annotations

import pytest

from tests.conftest import unavailable
from tests.support.docker_servers import DockerServer, engine
from tests.support.lock_helpers import PATIENCE
from tests.support.real_servers import find_backend
from tests.support.server_control import (
    Backend,
    Ensemble,
    NoBackendError,
    Settings,
    ZooKeeperServer,
    poll,
)
from zkwire import Client, QuotaExceededError, ThrottledOpError, Watch
from zkwire.testing.server.processor import ENVIRONMENT

pytestmark = pytest.mark.apache


@pytest.mark.smoke
def test_server_answers_four_letter_words(zookeeper: ZooKeeperServer) -> None:
    assert zookeeper.four_letter("ruok") == "imok"
    assert zookeeper.four_letter("srvr").startswith("Zookeeper version:")
    head, *lines = zookeeper.four_letter("envi").splitlines()
    names = [line.partition("=")[0] for line in lines]
    assert [head, *names[:1]] == ["Environment:", "zookeeper.version"]
    later = zookeeper.release >= (3, 5)
    assert names[1:] == [n for n in ENVIRONMENT if later or not n.startswith("os.memory")]


@pytest.mark.docker
@pytest.mark.smoke
def test_container_is_published_on_loopback_only(zookeeper: ZooKeeperServer) -> None:
    assert isinstance(zookeeper, DockerServer)
    assert engine("port", zookeeper.name) == f"2181/tcp -> 127.0.0.1:{zookeeper.port}"


@pytest.mark.parametrize("order", ["kill", "pause"])
def test_lost_leader_is_replaced_and_sessions_live_on(ensemble: Ensemble, order: str) -> None:
    leader = ensemble.leader()
    with Client(leader.hosts) as client:
        client.connect(PATIENCE)
        getattr(leader, order)()
        successor = ensemble.leader()
        assert successor is not leader
        with Client(successor.hosts, resume=client.credentials) as again:
            again.connect(PATIENCE)
            assert again.session_id == client.session_id
    leader.restore()
    poll("it follows", lambda: leader.mode() == "follower" or None, 60)


def test_no_server_is_a_skip_but_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZKWIRE_TEST_BACKEND", "installed")
    monkeypatch.setenv("ZOOKEEPER_HOME", "/nonexistent")
    with pytest.raises(NoBackendError, match="ZOOKEEPER_HOME"):
        find_backend()
    monkeypatch.setenv("ZKWIRE_TEST_BACKEND", "podman")
    with pytest.raises(ValueError, match="podman"):
        find_backend()
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no server"):
        unavailable("no server")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no server"):
        unavailable("no server")


def test_events_tell_their_zxid_from_3_9_on(
    zookeeper: ZooKeeperServer, observer: Client, fresh_path: str
) -> None:
    watch = Watch()
    observer.exists(fresh_path, watch=watch)
    observer.create(fresh_path)
    event = watch.wait(PATIENCE)
    stat = observer.exists(fresh_path)
    assert event is not None
    assert stat is not None
    assert event.zxid == (stat.czxid if zookeeper.release >= (3, 9) else None)


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
    with Client(zookeeper.hosts) as client:
        client.connect(PATIENCE)
        assert client.credentials.passwd == derived(client.session_id)


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
