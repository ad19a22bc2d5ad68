"""Where the tests get real ZooKeeper servers from.

`find_backend` tries, in this order:

* `servers`: the ones named in `ZKWIRE_TEST_SERVERS` (`host:port,...`). They run already and belong
  to somebody else, so they cannot be killed or paused;
* `docker`: containers, see `tests/support/docker_servers.py`;
* `installed`: processes of an installed ZooKeeper, see `tests/support/installed_servers.py`.

`ZKWIRE_TEST_BACKEND` names one of the three to allow no other. `ZKWIRE_TEST_RELEASE` names the
release, such as `3.9.5`: an installed one then, from the folders of `ZOOKEEPER_HOME` or Debian's
(3.8.0); the embedded server, asked for, behaves as that one does. Whatever a backend starts, it
stops: each server is a context manager, is discarded at the exit of the interpreter at the latest,
and an installed one is killed by the kernel when the tests die without a word.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tests.support.docker_servers import find_docker
from tests.support.installed_servers import find_installed
from tests.support.server_control import (
    FOUR_LETTER_SECONDS,
    Backend,
    Ensemble,
    NoBackendError,
    Settings,
    UncontrollableError,
    ZooKeeperServer,
)
from zkwire import testing
from zkwire.testing.server.server import OneServer


class GivenBackend(Backend):
    """Hands out the servers of `ZKWIRE_TEST_SERVERS`."""

    name = "servers"

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts

    def __str__(self) -> str:
        return f"ZKWIRE_TEST_SERVERS={self._hosts}"

    def make_standalone(self, settings: Settings) -> ZooKeeperServer:
        return self._servers()[0]

    def make_ensemble(self, settings: Settings) -> Ensemble:
        servers = self._servers()
        if len(servers) < 3:
            raise NoBackendError(f"{self} is not an ensemble of three")
        return Ensemble(servers)

    def _servers(self) -> list[ZooKeeperServer]:
        addresses = [member.strip().rpartition(":") for member in self._hosts.split(",")]
        return [ZooKeeperServer(host.strip("[]"), int(port)) for host, _, port in addresses]


def find_given() -> GivenBackend:
    """The servers of `ZKWIRE_TEST_SERVERS`."""
    hosts = os.environ.get("ZKWIRE_TEST_SERVERS")
    if not hosts:
        raise NoBackendError("ZKWIRE_TEST_SERVERS is not set")
    return GivenBackend(hosts)


WORDS = {"ruok", "srvr", "isro", "envi"}


class EmbeddedServer(ZooKeeperServer):
    """A member of an embedded service, seen as a server with a life of its own.

    What it does not have (a process to pause, a log, most four-letter words) ends the tests that
    need it in a skip.
    """

    def __init__(self, member: OneServer | testing.Server, end: Callable[[], object]) -> None:
        member.start()
        super().__init__("127.0.0.1", member.port)
        self._member = member
        self._end = end
        self._running = True

    @property
    def running(self) -> bool:
        return self._running

    def start(self, *, wait: bool = True) -> None:
        self._member.start()
        self._running = True

    def stop(self) -> None:
        self._member.stop()
        self._running = False

    def discard(self) -> None:
        self._end()
        self._running = False

    def four_letter(self, word: str, seconds: float = FOUR_LETTER_SECONDS) -> str:
        if word not in WORDS:
            raise UncontrollableError(f"{self} does not know {word}")
        return super().four_letter(word, seconds)


class EmbeddedBackend(Backend):
    """Servers in this process."""

    name = "embedded"

    def __str__(self) -> str:
        return "zkwire's own server"

    def make_standalone(self, settings: Settings) -> ZooKeeperServer:
        server = testing.Server(**_options(settings))
        return EmbeddedServer(server, server.close)

    def make_ensemble(self, settings: Settings) -> Ensemble:
        service = testing.Ensemble(3, **_options(settings))
        members = [EmbeddedServer(member, list) for member in service.servers]
        return Ensemble(members, service.close)


def _options(settings: Settings) -> dict[str, Any]:
    """What is asked of the server; it behaves as one of the line of `ZKWIRE_TEST_RELEASE`."""
    options: dict[str, Any] = {"tick": settings.tick_ms / 1000, "timeouts": (0.1, 60.0)}
    if release := os.environ.get("ZKWIRE_TEST_RELEASE"):
        options["version"] = ".".join(release.split(".")[:2])
    return options


FINDERS: dict[str, Callable[[], Backend]] = {
    "servers": find_given,
    "docker": find_docker,
    "installed": find_installed,
    "embedded": EmbeddedBackend,  # on request alone: it is not a real one
}
AUTOMATIC = ("servers", "docker", "installed")
WITH_RELEASES = ("installed", "embedded")


def find_backend() -> Backend:
    """The first way of having real servers that works; `NoBackendError` with all the reasons."""
    wanted = os.environ.get("ZKWIRE_TEST_BACKEND", "auto")
    names = list(AUTOMATIC) if wanted == "auto" else [wanted]
    if release := os.environ.get("ZKWIRE_TEST_RELEASE"):
        if wanted not in {"auto", *WITH_RELEASES}:
            raise NoBackendError(f"ZKWIRE_TEST_RELEASE={release} does not choose {wanted}")
        names = [wanted] if wanted in WITH_RELEASES else ["installed"]
    reasons = []
    for name in names:
        if name not in FINDERS:  # no reason to skip anything
            raise ValueError(f"ZKWIRE_TEST_BACKEND={name}: not one of auto, {', '.join(FINDERS)}")
        try:
            return FINDERS[name]()
        except NoBackendError as error:
            reasons.append(f"{name}: {error}")
    raise NoBackendError("no real ZooKeeper; " + "; ".join(reasons))
