"""What the tests of supervisors share: services that note their runs, and killed sessions."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.aio_helpers import eventually
from tests.support.both_clients import Side, done
from zkwire.testing import Server


class Terms:
    """What leads until its term is lost, and its fences."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self.fences: list[int] = []
        self.leading = self.most = 0
        self.lead = side.function(self._lead)

    async def _lead(self, lock: Any) -> None:
        self.leading += 1
        self.most = max(self.most, self.leading)
        self.fences.append(lock.fence)
        try:
            if self._side.asyncio:
                await for_ever()
            lock.lost.wait()
            lock.check()
        finally:
            self.leading -= 1

    async def wait(self, number: int) -> None:
        await eventually(f"term {number}", lambda: len(self.fences) >= number)


async def for_ever(*_: object) -> None:
    await asyncio.get_running_loop().create_future()


async def spin(client: Any) -> None:
    """Ask until that raises."""
    while True:
        await done(client.exists("/"))


def kill(server: Server, session_id: int) -> None:
    """The server ends the session."""
    assert server.expire(session_id)
