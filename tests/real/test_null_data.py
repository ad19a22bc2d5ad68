"""Null in the place of data: written, and told from empty data, with both clients."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from tests.support.server_control import ZooKeeperServer
from zkwire import AsyncClient, Client, Create, DataAndStat, GetData, SetData

both = pytest.mark.parametrize("kind", [Client, AsyncClient], ids=["threads", "asyncio"])
Kind = type[Client] | type[AsyncClient]


async def done(answer: Any) -> Any:
    """What a method returns, with either client."""
    return await answer if hasattr(answer, "__await__") else answer


@both
async def test_null_is_kept_apart_from_empty_data(
    kind: Kind, zookeeper: ZooKeeperServer, fresh_path: str
) -> None:
    client = kind(zookeeper.hosts)
    await done(client.connect())
    await done(client.create(fresh_path, None))
    null = await done(client.get_data(fresh_path))
    assert (null.data, null.is_null, null.stat.data_length) == (b"", True, 0)
    await done(client.set_data(fresh_path, b""))
    empty = await done(client.get_data(fresh_path))
    assert (empty.data, empty.is_null, empty.stat.data_length) == (b"", False, 0)
    await done(client.set_data(fresh_path, None))
    assert (await done(client.get_data(fresh_path))).is_null
    await done(client.delete(fresh_path))
    await done(client.close())


@pytest.mark.since("3.6")
@both
async def test_null_in_a_multi(kind: Kind, zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    client = kind(zookeeper.hosts)
    await done(client.connect())
    await done(client.multi([Create(fresh_path, None), Create(f"{fresh_path}/b", b"x")]))
    reads = [GetData(fresh_path), GetData(f"{fresh_path}/b")]
    assert [each.is_null for each in await done(client.multi_read(reads))] == [True, False]
    await done(client.multi([SetData(f"{fresh_path}/b", None)]))
    assert (await done(client.get_data(f"{fresh_path}/b"))).is_null
    await done(client.delete_tree(fresh_path))
    await done(client.close())


@pytest.mark.since("3.5")
def test_null_with_a_stat_and_a_ttl(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    with Client(zookeeper.hosts) as client:
        client.create_with_stat(fresh_path, None)
        assert client.get_data(fresh_path).is_null
        client.delete(fresh_path)
        client.create(fresh_path, None, container=True)
        assert client.get_data(fresh_path).is_null
        client.delete(fresh_path)


def test_null_data_outlives_a_copy(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    with Client(zookeeper.hosts) as client:
        client.create(fresh_path, None)
        null = client.get_data(fresh_path)
        client.delete(fresh_path)
    for other in (copy.copy(null), pickle.loads(pickle.dumps(null))):
        assert other == null == DataAndStat(b"", null.stat)
        assert other.is_null
