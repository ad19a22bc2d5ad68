"""Processes that contend for one lock, and what is done to them and to their sessions."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.interop.curator.process import find_curator
from tests.interop.neighbours.arbiter import HOLD_SECONDS, Arbiter, Holder
from tests.support.lock_helpers import end_session
from zkwire.jute.records import ConnectResponse
from zkwire.testing.proxy import FaultProxy

ROOT = Path(__file__).resolve().parents[3]
END_SECONDS = 120.0
SURPRISED_SECONDS = 0.05
"""How long a holder goes on whose session has been ended: until others hold."""


class Crew:
    """A process of one library, with so many contenders, behind a proxy of its own."""

    def __init__(
        self, library: str, recipe: str, count: int, *, server: str, path: str, port: int
    ) -> None:
        self.library = library
        self.proxy = FaultProxy(server)
        self._words = (self.proxy.hosts, path, str(port), recipe, str(count))
        self.process = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.proxy.close()

    def _start(self) -> subprocess.Popen[bytes]:
        program = (
            find_curator("Contend")
            if self.library == "curator"
            else [sys.executable, "-m", "tests.interop.neighbours.contenders", self.library]
        )
        return subprocess.Popen(
            [*program, *self._words],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """SIGKILL, and one like it."""
        self.kill()
        self.process = self._start()

    def cut(self) -> None:
        """End all of its connections; what is on its way is lost."""
        self.proxy.reset()
        self.proxy.reset_all()

    def ended(self, seconds: float) -> bool:
        """Whether it has ended by itself, in so many seconds."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(seconds) == 0
        return False


class Sessions:
    """Ends contenders' sessions, by a second connection with their ids and passwords."""

    def __init__(self, arbiter: Arbiter, server: str) -> None:
        self.ended = 0
        self._server, self._arbiter = server, arbiter
        self._known: dict[int, Holder] = {}
        self._doomed = False
        arbiter.on_grant = self._granted

    def end_next_holder(self) -> None:
        """That of the next holder, as soon as it holds, returning then."""
        with self._arbiter.changed:
            self._doomed = True
            self._arbiter.changed.wait_for(lambda: not self._doomed, END_SECONDS)

    def end_some(self, rng: random.Random) -> None:
        """That of one that has held, and waits or holds now."""
        with self._arbiter.changed:
            if self._known:
                self._end(self._known.pop(rng.choice(sorted(self._known))))

    def _granted(self, holder: Holder) -> float:
        self._known[holder.session_id] = holder
        if not self._doomed:
            return HOLD_SECONDS
        self._doomed = False
        self._known.pop(holder.session_id)
        self._end(holder)
        return SURPRISED_SECONDS

    def _end(self, holder: Holder) -> None:
        known = ConnectResponse(0, 4000, holder.session_id, holder.password, False)
        # The client may come back at once, and the connection that it takes away says nothing.
        with suppress(LookupError, EOFError, OSError):
            end_session(self._server, known, at_once=True)
            self.ended += 1


def finish(arbiter: Arbiter, crews: Sequence[Crew]) -> list[str]:
    """Let all contenders end; the libraries whose process has not."""
    arbiter.over = True
    deadline = time.monotonic() + END_SECONDS
    return [crew.library for crew in crews if not crew.ended(max(1.0, deadline - time.monotonic()))]
