"""Null in the place of data: written, and told from empty data, with both clients."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import Any

import pytest

from tests.support.both_clients import done
from tests.support.server_control import ZooKeeperServer
from zkwire import AsyncClient, Client, Create, DataAndStat, GetData, SetData


@pytest.mark.since("3.6")
@pytest.mark.parametrize("kind", [Client, AsyncClient], ids=["threads", "asyncio"])
def test_null_is_kept_apart_from_empty_data(
    kind: type[Any], zookeeper: ZooKeeperServer, fresh_path: str
) -> None:
    async def life() -> DataAndStat:
        client: Any = kind(zookeeper.hosts)
        await done(client.connect())
        await done(client.create(fresh_path, None))
        null: DataAndStat = await done(client.get_data(fresh_path))
        assert (null.data, null.is_null, null.stat.data_length) == (b"", True, 0)
        await done(client.set_data(fresh_path, b""))
        empty = await done(client.get_data(fresh_path))
        assert (empty.data, empty.is_null, empty.stat.data_length) == (b"", False, 0)
        await done(client.set_data(fresh_path, None))
        await done(client.multi([Create(f"{fresh_path}/a", None), Create(f"{fresh_path}/b", b"x")]))
        await done(client.create_with_stat(f"{fresh_path}/c", None))
        await done(client.create(f"{fresh_path}/d", None, container=True))
        paths = [fresh_path, *(f"{fresh_path}/{name}" for name in "abcd")]
        read = await done(client.multi_read([GetData(path) for path in paths]))
        assert [each.is_null for each in read] == [True, True, False, True, True]
        await done(client.multi([SetData(f"{fresh_path}/b", None)]))
        assert (await done(client.get_data(f"{fresh_path}/b"))).is_null
        await done(client.delete_tree(fresh_path))
        await done(client.close())
        return null

    null = asyncio.run(life())
    for other in (copy.copy(null), pickle.loads(pickle.dumps(null))):
        assert other == null == DataAndStat(b"", null.stat)
        assert other.is_null
