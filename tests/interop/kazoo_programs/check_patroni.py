"""Checks of patroni's ZooKeeper class through the life of a leader, on ZOOKEEPER_HOSTS.

They follow each other: each goes on where the one before has ended.  They run in the environment of
`tests.interop.kazoo_programs`, with kazoo's connection or zkwire's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import Thread
from typing import Any
from uuid import uuid4

from kazoo.client import KazooClient
from patroni.dcs.zookeeper import ZooKeeper
from patroni.postgresql.mpp import get_mpp

HOSTS = os.environ["ZOOKEEPER_HOSTS"]
SCOPE = f"batman-{uuid4().hex}"
PATIENCE = 20.0


def member(name: str) -> Any:
    config = {"scope": SCOPE, "name": name, "hosts": HOSTS.split(","), "namespace": "/service"}
    times = {"ttl": 30, "retry_timeout": 10, "loop_wait": 10}
    return ZooKeeper({**config, **times}, get_mpp({}))


def eventually(condition: Callable[[], object]) -> None:
    latest = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < latest
        time.sleep(0.05)


first, second = member("first"), member("second")


def shows(who: Any, state: str) -> bool:
    return bool(who.touch_member({"conn_url": f"postgres://{state}/", "state": state}))


def test_1_one_member_initializes_and_the_other_may_not() -> None:
    assert not first.get_cluster().members
    assert first.initialize(create_new=True, sysid="")
    assert not second.initialize(create_new=True, sysid="")
    assert first.cancel_initialization()
    assert first.get_cluster().initialize is None
    assert first.initialize(create_new=True)
    assert first.initialize(create_new=False, sysid="12345")
    assert second.get_cluster().initialize == "12345"


def test_2_members_show_themselves_and_write_no_more_than_needed() -> None:
    assert shows(first, "running")
    assert shows(second, "running")
    assert sorted(one.name for one in first.get_cluster().members) == ["first", "second"]
    assert shows(first, "starting")
    assert second.get_cluster().get_member("first").data["state"] == "starting"
    first.get_cluster()
    before = first.get_node(first.member_path)[1].version
    assert shows(first, "starting")
    assert first.get_node(first.member_path)[1].version == before


def test_3_one_is_the_leader_and_writes_its_status() -> None:
    assert first.attempt_to_acquire_leader()
    assert not second.attempt_to_acquire_leader()
    assert second.get_cluster().leader.name == "first"
    assert first.update_leader(first.get_cluster(), 4711, {"slot": 4000})
    status = second.get_cluster().status
    assert (status.last_lsn, status.slots["slot"]) == (4711, 4000)


def test_4_the_configuration_and_what_is_asked_for_are_written() -> None:
    assert first.set_config_value('{"ttl": 30}')
    assert first.set_config_value('{"ttl": 31}', first.get_cluster().config.version)
    # patroni takes the version 0 for any.
    old = first.get_cluster().config.version
    assert first.set_config_value('{"ttl": 32}', old)
    assert not second.set_config_value('{"ttl": 33}', old)
    assert second.get_cluster().config.data == {"ttl": 32}
    assert first.set_history_value('[[1, 2, "reason"]]')
    assert first.write_sync_state("first", ["second"], 0) is not None
    assert second.manual_failover("first", "second")
    cluster = second.get_cluster()
    assert cluster.history.lines == [[1, 2, "reason"]]
    assert (cluster.sync.members, cluster.failover.candidate) == (["first", "second"], "second")
    assert first.delete_sync_state()
    assert first.manual_failover("", "")
    assert second.get_cluster().sync.is_empty


def test_5_a_watching_member_is_woken_by_a_change() -> None:
    leader, woken = second.get_cluster().leader, list[Any]()
    waiting = Thread(target=lambda: woken.append(second.watch(leader.version, PATIENCE)))
    waiting.start()
    time.sleep(0.2)
    assert first.set_config_value('{"ttl": 34}')
    waiting.join(PATIENCE)
    assert woken == [True]


def test_6_a_lost_connection_is_made_again_and_the_leader_leads() -> None:
    """It is lost when `loop_wait` changes."""
    states: list[Any] = []
    first._client.add_listener(states.append)
    first.reload_config({"retry_timeout": 10, "loop_wait": 9, "ttl": 30})
    eventually(lambda: states == ["SUSPENDED", "CONNECTED"])
    first._client.remove_listener(states.append)
    cluster = first.get_cluster()
    assert cluster.leader.session == first._client.client_id[0]
    assert first.update_leader(cluster, 4712, None)


def test_7_a_new_ttl_is_a_new_session() -> None:
    before = second._client.client_id
    second.reload_config({"retry_timeout": 10, "loop_wait": 10, "ttl": 40})
    assert (second.ttl, second._client.client_id != before) == (40, True)
    second.get_cluster()
    assert shows(second, "running")
    found = first.get_cluster().get_member("second", fallback_to_leader=False)
    assert found.session == second._client.client_id[0]


def test_8_an_expired_session_is_replaced_and_the_leader_key_goes_with_it() -> None:
    client = first._client
    expired, states = client.client_id, list[Any]()
    client.add_listener(states.append)
    other = KazooClient(HOSTS, client_id=expired)
    other.start()
    other.stop()
    other.close()
    client._connection._socket.close()  # or else kazoo does not notice it
    eventually(lambda: states[-2:] == ["LOST", "CONNECTED"])
    assert client.client_id != expired
    client.remove_listener(states.append)
    assert second.get_cluster().leader is None
    assert second.attempt_to_acquire_leader()
    assert first.get_cluster().leader.name == "second"


def test_9_the_leader_gives_its_key_back_and_the_cluster_is_deleted() -> None:
    assert second.delete_leader(second.get_cluster().leader)
    eventually(lambda: first.get_cluster().leader is None)
    first.delete_cluster()
    assert second.get_cluster().initialize is None
    for one in (first, second):
        one._client.stop()
        one._client.close()
