"""docs/how-to/trio.md: its shell over the core works under trio, cut off and cancelled, too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zkwire import OutcomeUnknownError, Watch
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import cut_after

trio = pytest.importorskip("trio")

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "trio.md").read_text()
SHELL, LOCK, USE = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
MOST_LINES = 150
LONG = 60.0

made: dict[str, Any] = {}
exec(SHELL + LOCK, made)
connect, LockingClient, AsyncSequentialLock = (
    made[name] for name in ("connect", "LockingClient", "AsyncSequentialLock")
)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(tick=0.2, timeouts=(2.0, 2.0)) as server:
        yield server
        assert list(server.sessions) == []


def run(main: Any) -> None:
    async def limited() -> None:
        with trio.fail_after(LONG):
            await main()

    trio.run(limited)


def test_the_page_runs_on_a_server(zookeeper: Any, capsys: pytest.CaptureFixture[str]) -> None:
    exec((SHELL + LOCK + USE).replace("127.0.0.1:2181", zookeeper.hosts), {})
    assert capsys.readouterr().out == "b'1'\nEventType.NODE_DATA_CHANGED\nfence: True\n"


def test_a_cut_in_the_middle(server: Server) -> None:
    """The request in flight ends, the session goes on, and the watch is set again."""

    async def main() -> None:
        async with connect(proxy.hosts, 2.0, LockingClient) as client:
            await client.create("/watched")
            watch, session_id = Watch(), client.session_id
            await client.get_data("/watched", watch=watch)
            proxy.on("create", action=cut_after)
            with pytest.raises(OutcomeUnknownError):
                await client.create("/lost", ephemeral=True)
            await client.connected(None)
            await client.set_data("/watched", b"changed")
            assert (await watch).path == "/watched"
            assert (await client.exists("/lost")).ephemeral_owner == session_id
            await trio.sleep(3.0)  # longer than the session timeout: pings keep it
            assert (await client.exists("/lost")).ephemeral_owner == session_id

    with FaultProxy(server.hosts) as proxy:
        run(main)


@pytest.mark.parametrize("cut", [False, True])
def test_a_cancelled_acquire_leaves_nothing(server: Server, cut: bool) -> None:
    async def main() -> None:
        async with connect(proxy.hosts, 2.0, LockingClient) as client:
            holder, other = (AsyncSequentialLock(client, "/lock") for _ in range(2))
            assert await holder.acquire()
            if cut:
                proxy.on("create", action=cut_after)
            in_queue = trio.Event()
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:

                    def placed(_: int) -> None:
                        in_queue.set()

                    async def acquire() -> None:
                        await other.acquire(on_position=placed)

                    nursery.start_soon(acquire)
                    await in_queue.wait()
                    scope.cancel()
            while len(await client.get_children("/lock")) > 1:
                await trio.sleep(0.01)
            assert holder.held
            await holder.release()
            assert await other.acquire(timeout=LONG)
            await other.release()
            assert await client.get_children("/lock") == []

    with FaultProxy(server.hosts) as proxy:
        run(main)


def test_the_shell_is_short() -> None:
    assert len(SHELL.splitlines()) <= MOST_LINES
