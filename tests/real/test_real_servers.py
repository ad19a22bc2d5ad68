"""The servers of the tests themselves: they answer, die, freeze and come back as ordered."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from tests.conftest import unavailable
from tests.support.lock_helpers import PATIENCE
from tests.support.real_servers import GivenBackend, UncontrollableError, find_backend
from tests.support.server_control import (
    DEFAULT_SETTINGS,
    Backend,
    Ensemble,
    NoBackendError,
    Settings,
    ZooKeeperServer,
    free_port,
    poll,
)
from zkwire import Client, Watch
from zkwire.testing.server.processor import ENVIRONMENT

pytestmark = pytest.mark.apache

NEW_SESSION = bytes.fromhex(
    "0000002d000000000000000000000000000027100000000000000000000000100000000000000000000000000000000000"
)
"""A ConnectRequest for a new session of ten seconds, with its length in front."""


class Handshake:
    """A bare connection after the exchange of ConnectRequest and ConnectResponse."""

    def __init__(self, server: ZooKeeperServer, request: bytes = NEW_SESSION) -> None:
        self.connection = socket.create_connection((server.host, server.port), 30)
        self.connection.sendall(request)
        reader = self.connection.makefile("rb")
        (self.length,) = struct.unpack(">i", reader.read(4))
        answer = reader.read(self.length)
        reader.close()
        _, self.timeout_ms, self.session_id, size = struct.unpack_from(">iiqi", answer)
        self.password = answer[20 : 20 + size]

    def resumed(self, server: ZooKeeperServer) -> Handshake:
        """The same session on a new connection."""
        head = struct.pack(">iqiqi", 0, 0, 10_000, self.session_id, len(self.password))
        body = head + self.password + b"\0"
        return Handshake(server, struct.pack(">i", len(body)) + body)

    def __enter__(self) -> Handshake:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()


@pytest.mark.smoke
def test_server_answers_four_letter_words(zookeeper: ZooKeeperServer) -> None:
    assert zookeeper.four_letter("ruok") == "imok"
    assert zookeeper.four_letter("srvr").startswith("Zookeeper version:")
    head, *lines = zookeeper.four_letter("envi").splitlines()
    names = [line.partition("=")[0] for line in lines]
    assert [head, *names[:1]] == ["Environment:", "zookeeper.version"]
    later = zookeeper.release >= (3, 5)
    assert names[1:] == [n for n in ENVIRONMENT if later or not n.startswith("os.memory")]


@pytest.mark.smoke
def test_server_greets_a_client(zookeeper: ZooKeeperServer) -> None:
    with Handshake(zookeeper) as client:
        assert client.length in {36, 37}
        assert client.timeout_ms == 10_000
        assert client.session_id != 0
        assert len(client.password) == 16


@pytest.mark.docker
@pytest.mark.smoke
def test_container_is_published_on_loopback_only(zookeeper: ZooKeeperServer) -> None:
    from testcontainers.core.docker_client import DockerClient

    engine = DockerClient().client
    try:
        (container,) = engine.containers.list(filters={"publish": str(zookeeper.port)})
    finally:
        engine.close()
    assert container.ports["2181/tcp"] == [{"HostIp": "127.0.0.1", "HostPort": str(zookeeper.port)}]


def test_killed_server_comes_back_with_its_sessions(zookeeper: ZooKeeperServer) -> None:
    with Handshake(zookeeper) as client:
        zookeeper.kill()
        assert zookeeper.mode() is None
        zookeeper.start()
        with client.resumed(zookeeper) as again:
            assert again.session_id == client.session_id


def test_paused_server_is_silent_until_resumed(zookeeper: ZooKeeperServer) -> None:
    zookeeper.pause()
    with pytest.raises(TimeoutError):
        zookeeper.four_letter("ruok", seconds=0.2)
    zookeeper.resume()
    assert zookeeper.four_letter("ruok") == "imok"


@pytest.mark.parametrize("order", ["kill", "stop", "pause"])
def test_restore_undoes(zookeeper: ZooKeeperServer, order: str) -> None:
    getattr(zookeeper, order)()
    zookeeper.restore()
    assert zookeeper.four_letter("ruok") == "imok"


def test_own_server_takes_settings(backend: Backend) -> None:
    if isinstance(backend, GivenBackend):
        unavailable(f"{backend} takes no settings")
    settings = Settings(tick_ms=300, options={"maxSessionTimeout": "5000"})
    with backend.standalone(settings) as server:
        configuration = server.four_letter("conf")
        assert "tickTime=300" in configuration
        assert "maxSessionTimeout=5000" in configuration
    assert server.mode() is None


def test_ensemble_finds_the_member_that_serves_a_client(ensemble: Ensemble) -> None:
    for server in ensemble.servers:
        with Handshake(server) as client:
            assert ensemble.server_for_session(client.session_id) is server
            local_port = client.connection.getsockname()[1]
            assert ensemble.server_for_connection(local_port) is server


@pytest.mark.parametrize("order", ["kill", "pause"])
def test_lost_leader_is_replaced_and_sessions_live_on(ensemble: Ensemble, order: str) -> None:
    leader = ensemble.leader()
    with Handshake(leader) as client:
        getattr(leader, order)()
        successor = ensemble.leader()
        assert successor is not leader
        with client.resumed(successor) as again:
            assert again.session_id == client.session_id
    leader.restore()
    poll("it follows", lambda: leader.mode() == "follower" or None, 60)


def test_ports_are_different_and_outside_the_range_for_clients() -> None:
    ports = {free_port() for _ in range(50)}
    assert len(ports) == 50
    limits = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if limits.exists():
        assert max(ports) < int(limits.read_text().split()[0])


def test_given_servers_are_not_ours_to_control(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZKWIRE_TEST_BACKEND", "servers")
    monkeypatch.setenv("ZKWIRE_TEST_SERVERS", "one:2181, [::1]:2182,three:2183")
    given = find_backend().make_ensemble(DEFAULT_SETTINGS)
    assert given.hosts == "one:2181,[::1]:2182,three:2183"
    with pytest.raises(UncontrollableError):
        given.servers[0].kill()


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
