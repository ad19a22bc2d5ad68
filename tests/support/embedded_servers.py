"""zkwire's own server in the place of a real one: the same tests, without a JVM.

Asked for with ``ZKWIRE_TEST_BACKEND=embedded``, never found by itself: a test that is `real` proves
something about Apache ZooKeeper only there.  What such a server does not have (processes to pause,
logs, most four-letter words) ends the tests that need it in a skip.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tests.support.real_servers import UncontrollableError
from tests.support.server_control import (
    FOUR_LETTER_SECONDS,
    Backend,
    Ensemble,
    Settings,
    ZooKeeperServer,
)
from zkwire import testing
from zkwire.testing.server.server import OneServer

WORDS = {"ruok", "srvr", "isro", "envi"}


class EmbeddedServer(ZooKeeperServer):
    """A member of an embedded service, seen as a server with a life of its own."""

    def __init__(self, member: OneServer | testing.Server, end: Callable[[], None]) -> None:
        member.start()
        super().__init__("127.0.0.1", member.port)
        self._member = member
        self._end = end
        self._running = True

    @property
    def pid(self) -> int:
        raise UncontrollableError(f"{self} is not a process of its own")

    @property
    def running(self) -> bool:
        return self._running

    def start(self, *, wait: bool = True) -> None:
        self._member.start()
        self._running = True

    def stop(self) -> None:
        self._member.stop()
        self._running = False

    def kill(self) -> None:
        self.stop()

    def pause(self) -> None:
        raise UncontrollableError(f"{self} cannot be paused")

    def resume(self) -> None:
        """It is never paused."""

    def discard(self) -> None:
        self._end()
        self._running = False

    def log_tail(self) -> str:
        return "(an embedded server writes no log)"

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
        members = [EmbeddedServer(member, _nothing) for member in service.servers]
        return Ensemble(members, service.close)


def _options(settings: Settings) -> dict[str, Any]:
    """What is asked of the server; it behaves as one of the line of `ZKWIRE_TEST_RELEASE`."""
    options: dict[str, Any] = {"tick": settings.tick_ms / 1000, "timeouts": (0.1, 60.0)}
    if release := os.environ.get("ZKWIRE_TEST_RELEASE"):
        options["version"] = ".".join(release.split(".")[:2])
    return options


def _nothing() -> None:
    """The members end with their service."""
