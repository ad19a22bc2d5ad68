"""What the tests of supervisors share: services that note their runs, and killed sessions."""

from __future__ import annotations

from typing import Any

from zkwire.recipes._service import Condition, Service
from zkwire.testing import Server


class Probe(Service):
    """Notes the session of each of its runs; one begins when the one before has ended."""

    _called, _path = "test", "/"

    def __init__(self, sessions: Any) -> None:
        super().__init__(sessions)
        self.runs: list[int] = []
        self.running = False
        self.overlapped = False
        self.began = Condition(lambda: self.running)
        sessions.serve(self)

    async def _serve(self, runtime: Any) -> None:
        self.overlapped |= self.running
        self.running = True
        self.runs.append(runtime.session_id)
        self.began.notify()
        await runtime.wait_for(Condition(lambda: False))

    def _session_ended(self) -> None:
        self.running = False


class Refuses(Service):
    """Ends with an error of its own in its first run."""

    _called, _path = "test", "/"

    def __init__(self, sessions: Any, error: Exception) -> None:
        super().__init__(sessions)
        self.refusal = error
        self.over = Condition(lambda: self._error is not None)
        sessions.serve(self)

    async def _serve(self, runtime: Any) -> None:
        await runtime.operations.exists("/")
        raise self.refusal

    def _changed(self) -> None:
        self.over.notify()


def kill(server: Server, session_id: int) -> None:
    """The server ends the session."""
    assert server.expire(session_id)
