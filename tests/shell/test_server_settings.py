"""What a server's settings decide: it may grant less, and take more or fewer bytes, than usual."""

from __future__ import annotations

import asyncio
import logging

import pytest

from zkwire import AsyncClient, Client, testing


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
