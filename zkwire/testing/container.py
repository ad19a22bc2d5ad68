"""A real ZooKeeper in a container, for tests that bring testcontainers along.

Decides when the server is ready: once it has given a client a session.  A line in a log says less.
"""

from __future__ import annotations

import time
from typing import Any, Self

from zkwire import Client, ZooKeeperError

try:
    from docker.errors import DockerException
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.waiting_utils import WaitStrategy, WaitStrategyTarget
except ImportError as _missing:
    raise ImportError(
        f"ZooKeeperContainer needs testcontainers, `pip install testcontainers`: {_missing}"
    ) from _missing

IMAGE = "zookeeper"
"""The official one."""
CLIENT_PORT = 2181
ATTEMPT_SECONDS = 2.0


class HandshakeWaitStrategy(WaitStrategy):
    """Wait until the server gives a client a session and answers it."""

    def wait_until_ready(self, container: WaitStrategyTarget) -> None:
        """TimeoutError if that takes too long, and as soon as the container has ended."""
        deadline = time.monotonic() + self._startup_timeout
        while True:
            container.reload()
            if container.status in {"exited", "dead"}:
                raise TimeoutError("the container ended before ZooKeeper served")
            host, port = container.get_container_host_ip(), container.get_exposed_port(CLIENT_PORT)
            try:
                with Client(f"{host}:{port}", operation_timeout=ATTEMPT_SECONDS) as client:
                    client.exists("/")
                    return
            except ZooKeeperError as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"ZooKeeper gave no session within {self._startup_timeout:g} s"
                    ) from error
            time.sleep(self._poll_interval)


class ZooKeeperContainer(DockerContainer):
    """A server from an image, serving from ``start()`` or ``with`` until ``stop()``.

    ``image`` listens at port 2181 within its container.  The other arguments are those of
    `testcontainers.core.container.DockerContainer`.  RuntimeError says that no Docker engine
    answers, or that it neither has the image nor can pull it; TimeoutError, with the log as a note,
    that no client got a session within the time limit (that of testcontainers, 120 s).
    """

    def __init__(self, image: str = IMAGE, **options: Any) -> None:
        try:
            super().__init__(image, **options)
        except DockerException as error:
            raise RuntimeError(f"no Docker engine answers: {error}") from error
        self.with_exposed_ports(CLIENT_PORT)
        self.waiting_for(HandshakeWaitStrategy())

    def start(self) -> Self:
        """Start it, and wait until it serves."""
        try:
            return super().start()
        except DockerException as error:
            raise RuntimeError(f"the image {self.image} does not start: {error}") from error

    def get_connection_string(self) -> str:
        """The ``host:port`` for clients."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(CLIENT_PORT)}"
