"""27 checks of patroni's ZooKeeper class through the life of a leader, on ZOOKEEPER_HOSTS.

They follow each other: each goes on where the one before has ended.  They run in the environment of
`tests.interop.kazoo_programs`, with kazoo's connection or zkwire's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
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


class Life:
    """Two members, and what tests hand on."""

    def __init__(self) -> None:
        self.first, self.second = member("first"), member("second")
        self.version: Any = None

    def cluster(self, who: Any) -> Any:
        return who.get_cluster()


@pytest.fixture(scope="module")
def life() -> Iterator[Life]:
    life = Life()
    yield life
    for one in (life.first, life.second):
        one._client.stop()
        one._client.close()


def test_01_a_new_cluster_is_empty(life: Life) -> None:
    cluster = life.cluster(life.first)
    assert cluster.initialize is None
    assert not cluster.members


def test_02_one_member_begins_to_initialize(life: Life) -> None:
    assert life.first.initialize(create_new=True, sysid="")


def test_03_the_other_may_not(life: Life) -> None:
    assert not life.second.initialize(create_new=True, sysid="")


def test_04_the_initialization_can_be_cancelled(life: Life) -> None:
    assert life.first.cancel_initialization()
    assert life.cluster(life.first).initialize is None


def test_05_the_system_identifier_is_set(life: Life) -> None:
    assert life.first.initialize(create_new=True)
    assert life.first.initialize(create_new=False, sysid="12345")
    assert life.cluster(life.second).initialize == "12345"


def test_06_a_member_shows_itself(life: Life) -> None:
    assert life.first.touch_member({"conn_url": "postgres://first/", "state": "running"})
    assert [one.name for one in life.cluster(life.second).members] == ["first"]


def test_07_a_second_member_shows_itself(life: Life) -> None:
    assert life.second.touch_member({"conn_url": "postgres://second/", "state": "running"})
    assert sorted(one.name for one in life.cluster(life.first).members) == ["first", "second"]


def test_08_a_member_changes_its_data(life: Life) -> None:
    life.cluster(life.first)
    assert life.first.touch_member({"conn_url": "postgres://first/", "state": "starting"})
    assert life.cluster(life.second).get_member("first").data["state"] == "starting"


def test_09_what_has_not_changed_is_not_written(life: Life) -> None:
    life.cluster(life.first)
    before = life.first.get_node(life.first.member_path)[1].version
    assert life.first.touch_member({"conn_url": "postgres://first/", "state": "starting"})
    assert life.first.get_node(life.first.member_path)[1].version == before


def test_10_a_member_gets_the_leader_key(life: Life) -> None:
    assert life.first.attempt_to_acquire_leader()
    assert life.cluster(life.second).leader.name == "first"


def test_11_the_other_member_does_not(life: Life) -> None:
    assert not life.second.attempt_to_acquire_leader()


def test_12_the_leader_updates_its_key_and_status(life: Life) -> None:
    cluster = life.cluster(life.first)
    assert life.first.update_leader(cluster, 4711, {"slot": 4000})
    status = life.cluster(life.second).status
    assert (status.last_lsn, status.slots["slot"]) == (4711, 4000)


def test_13_the_configuration_is_written(life: Life) -> None:
    assert life.first.set_config_value('{"ttl": 30}')
    assert life.cluster(life.second).config.data == {"ttl": 30}


def test_14_an_old_version_of_the_configuration_is_refused(life: Life) -> None:
    old = life.cluster(life.first).config.version
    assert life.first.set_config_value('{"ttl": 31}', old)
    # patroni takes the version 0 for any.
    old = life.cluster(life.first).config.version
    assert life.first.set_config_value('{"ttl": 32}', old)
    assert not life.second.set_config_value('{"ttl": 33}', old)


def test_15_the_history_is_written(life: Life) -> None:
    assert life.first.set_history_value('[[1, 2, "reason"]]')
    assert life.cluster(life.second).history.lines == [[1, 2, "reason"]]


def test_16_the_state_of_synchronous_replicas_is_written(life: Life) -> None:
    life.version = life.first.write_sync_state("first", ["second"], 0)
    assert life.version is not None
    assert life.cluster(life.second).sync.members == ["first", "second"]


def test_17_that_state_is_deleted(life: Life) -> None:
    assert life.first.delete_sync_state()
    assert life.cluster(life.second).sync.is_empty


def test_18_a_failover_is_asked_for_and_withdrawn(life: Life) -> None:
    assert life.second.manual_failover("first", "second")
    assert life.cluster(life.first).failover.candidate == "second"
    assert life.first.manual_failover("", "")


def test_19_a_watching_member_is_woken_by_a_change(life: Life) -> None:
    life.cluster(life.second)
    leader = life.second.cluster.leader
    woken: list[Any] = []
    waiting = Thread(target=lambda: woken.append(life.second.watch(leader.version, PATIENCE)))
    waiting.start()
    time.sleep(0.2)
    assert life.first.set_config_value('{"ttl": 34}')
    waiting.join(PATIENCE)
    assert woken == [True]


def test_20_a_lost_connection_is_made_again_when_loop_wait_changes(life: Life) -> None:
    states: list[Any] = []
    life.first._client.add_listener(states.append)
    life.first.reload_config({"retry_timeout": 10, "loop_wait": 9, "ttl": 30})
    eventually(lambda: states == ["SUSPENDED", "CONNECTED"])
    life.first._client.remove_listener(states.append)


def test_21_the_leader_is_still_the_leader_of_its_session(life: Life) -> None:
    cluster = life.cluster(life.first)
    assert cluster.leader.session == life.first._client.client_id[0]
    assert life.first.update_leader(cluster, 4712, None)


def test_22_a_new_ttl_is_a_new_session(life: Life) -> None:
    before = life.second._client.client_id
    life.second.reload_config({"retry_timeout": 10, "loop_wait": 10, "ttl": 40})
    assert life.second.ttl == 40
    assert life.second._client.client_id != before


def test_23_the_member_shows_itself_in_the_new_session(life: Life) -> None:
    life.cluster(life.second)
    assert life.second.touch_member({"conn_url": "postgres://second/", "state": "running"})
    found = life.cluster(life.first).get_member("second", fallback_to_leader=False)
    assert found.session == life.second._client.client_id[0]


def test_24_an_expired_session_is_replaced(life: Life) -> None:
    client = life.first._client
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


def test_25_the_leader_key_went_with_the_session(life: Life) -> None:
    assert life.cluster(life.second).leader is None
    assert life.second.attempt_to_acquire_leader()
    assert life.cluster(life.first).leader.name == "second"


def test_26_the_leader_gives_its_key_back(life: Life) -> None:
    assert life.second.delete_leader(life.cluster(life.second).leader)
    eventually(lambda: life.cluster(life.first).leader is None)


def test_27_the_cluster_is_deleted(life: Life) -> None:
    life.first.delete_cluster()
    assert life.cluster(life.second).initialize is None
