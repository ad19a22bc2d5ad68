"""What a server's settings decide: it may grant less, and take more or fewer bytes, than usual."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.shell.test_client import PATIENCE
from zkwire import (
    AsyncClient,
    Client,
    ConnectionLossError,
    Create,
    GetData,
    Queue,
    SetData,
    Supervisor,
    Watch,
    testing,
)

MIB = 1 << 20


def test_lease_margin_that_was_not_granted_is_reduced_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "zkwire")
    with testing.Server(tick=0.25) as server, testing.Server(tick=1.0) as generous:
        with Client(server.hosts, session_timeout=12.0, lease_margin=2.4) as client:
            assert (client.session_timeout, client.lease_margin) == (5.0, 1.0)

        async def granted() -> float:
            async with AsyncClient(server.hosts, session_timeout=12, lease_margin=2) as client:
                return client.lease_margin

        assert asyncio.run(granted()) == 1.0
        with Client(generous.hosts, session_timeout=12.0, lease_margin=2.4) as client:
            assert client.lease_margin == 2.4
    told = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert told == [
        f"the server has granted a session timeout of 5 s, so the lease_margin is 1 s, a fifth of "
        f"that, and not {wanted} s: enough if the servers' tickTime is less than 2 s"
        for wanted in ("2.4", "2")
    ]


def test_hazard_A57_what_a_server_takes_can_be_sent() -> None:
    big = bytes(3 * MIB)
    with testing.Server(jute_maxbuffer=4 * MIB) as server:
        with Supervisor(server.hosts, send_limit=4 * MIB) as supervisor:
            client = supervisor.client(PATIENCE)
            client.create("/a", big)
            client.pipeline.set_data("/a", big).result(PATIENCE)
            client.multi([SetData("/a", big[MIB:]), Create("/b", big[2 * MIB :])])
            with client.transaction() as transaction:
                transaction.set_data("/b", big)
            assert client.multi_read([GetData("/b")])[0].data == big
            Queue(client, "/q").put(big)

        async def written() -> int:
            async with AsyncClient(server.hosts, send_limit=4 * MIB) as client:
                return (await client.set_data("/a", big)).data_length

        assert asyncio.run(written()) == len(big)
        with Client(server.hosts) as usual:
            for send in (
                lambda: usual.set_data("/a", big),
                lambda: usual.multi([SetData("/a", bytes(MIB - 200)), SetData("/b", bytes(200))]),
                lambda: usual.transaction().set_data("/a", big),
            ):
                with pytest.raises(ValueError, match="this client's send_limit is 1048575"):
                    send()


def test_hazard_A57_a_request_that_is_longer_than_a_server_takes_says_perhaps() -> None:
    """Whether all of it was sent decides which error it is: the server does not read on."""
    with testing.Server() as server, Client(server.hosts, send_limit=4 * MIB) as client:
        client.create("/a")
        with pytest.raises(ConnectionLossError, match=r"perhaps because of the 20000\d\d bytes"):
            client.set_data("/a", bytes(2_000_000))
        assert client.get_data("/a").data == b""


def test_what_the_client_sends_by_itself_keeps_to_its_send_limit() -> None:
    limit = 20_000
    with (
        testing.Server(jute_maxbuffer=limit) as server,
        testing.FaultProxy(server.hosts) as proxy,
        Client(proxy.hosts, send_limit=limit, session_timeout=PATIENCE) as client,
        Client(server.hosts) as other,
    ):
        watches = [Watch() for _ in range(300)]
        for number, watch in enumerate(watches):
            client.exists(f"/{number:0200}", watch=watch)
        proxy.cut_all()
        for number, watch in enumerate(watches):
            other.create(f"/{number:0200}")
            assert watch.wait(PATIENCE) is not None
        queue = Queue(client, "/q")
        queue.put_many([bytes(300)] * 100)
        assert len(queue) == 100
        assert max(len(frame.raw) - 4 for frame in proxy.log) <= limit
