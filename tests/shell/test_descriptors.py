"""How many descriptors a client has: a service with hundreds of clients reaches `ulimit -n`."""

from __future__ import annotations

import asyncio
import os
import select
import selectors

import pytest

from zkwire import AsyncClient, Client, Watch
from zkwire.testing import Server

pytestmark = pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc"
)
CLIENTS = 10


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def used(client: Client) -> Client:
    """The client, once it has been used in every way: a read, a watch, a pipeline."""
    client.connect()
    watch = Watch()
    client.exists(f"/{client.session_id}", watch=watch)
    client.pipeline.create(f"/{client.session_id}").result()
    assert watch.wait(30)
    return client


@pytest.mark.parametrize("epoll", [True, False])
def test_a_client_has_five_descriptors_at_most(
    epoll: bool, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not epoll:
        monkeypatch.delattr(select, "epoll")
        monkeypatch.setattr(selectors, "DefaultSelector", selectors.PollSelector)
    theirs = 1  # the server, in this process, has the other end of the connection
    before = descriptors()
    clients = [used(Client(server.hosts)) for _ in range(CLIENTS)]
    try:
        assert descriptors() - before <= (5 + theirs) * CLIENTS
    finally:
        for client in clients:
            client.close()


def test_a_client_for_asyncio_has_one_descriptor(server: Server) -> None:
    async def main() -> None:
        before = descriptors()
        clients = [AsyncClient(server.hosts) for _ in range(CLIENTS)]
        try:
            for client in clients:
                await client.connect()
            assert descriptors() - before <= 2 * CLIENTS
        finally:
            for client in clients:
                await client.close()

    asyncio.run(main())


def test_a_closed_client_has_none(server: Server) -> None:
    with Client(server.hosts):
        pass  # what the process itself gets once
    before = descriptors()
    client = used(Client(server.hosts))
    assert descriptors() > before
    client.close()
    assert descriptors() <= before + 1  # the server's end of the connection
