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
from typing import TYPE_CHECKING, NoReturn

from tests.support.installed_servers import find_installed
from tests.support.server_control import (
    Backend,
    Ensemble,
    NoBackendError,
    Settings,
    ZooKeeperServer,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class UncontrollableError(Exception):
    """The servers belong to somebody else: they must not be killed, paused or stopped."""


class GivenServer(ZooKeeperServer):
    """A server of `ZKWIRE_TEST_SERVERS`."""

    running = True
    """Always: it is never paused."""

    @property
    def pid(self) -> int:
        self.kill()

    def start(self, *, wait: bool = True) -> None:
        """It runs already; say so early if it does not."""
        if wait:
            self.wait_serving()

    def kill(self) -> NoReturn:
        raise UncontrollableError(f"{self} is from ZKWIRE_TEST_SERVERS: not the tests' to control")

    stop = pause = kill

    def resume(self) -> None:
        """Never paused."""

    def discard(self) -> None:
        """Not the tests' to end."""

    def log_tail(self) -> str:
        return "(the log of a server from ZKWIRE_TEST_SERVERS is not known)"


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

    def _servers(self) -> list[GivenServer]:
        addresses = [member.strip().rpartition(":") for member in self._hosts.split(",")]
        return [GivenServer(host.strip("[]"), int(port)) for host, _, port in addresses]


def find_given() -> GivenBackend:
    """The servers of `ZKWIRE_TEST_SERVERS`."""
    hosts = os.environ.get("ZKWIRE_TEST_SERVERS")
    if not hosts:
        raise NoBackendError("ZKWIRE_TEST_SERVERS is not set")
    return GivenBackend(hosts)


def find_docker() -> Backend:
    """A Docker engine with the image; testcontainers is imported only when it is asked for."""
    try:
        from tests.support import docker_servers
    except ImportError as error:
        raise NoBackendError(str(error)) from error
    return docker_servers.find_docker()


def find_embedded() -> Backend:
    """zkwire's own server; only on request, since it is not a real one."""
    from tests.support.embedded_servers import EmbeddedBackend

    return EmbeddedBackend()


FINDERS: dict[str, Callable[[], Backend]] = {
    "servers": find_given,
    "docker": find_docker,
    "installed": find_installed,
    "embedded": find_embedded,
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
