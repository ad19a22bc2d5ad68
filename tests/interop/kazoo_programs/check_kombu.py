"""Four checks of kombu's ZooKeeper transport, on the server of ZOOKEEPER_HOSTS.

They run in the environment of `tests.interop.kazoo_programs`, with kazoo's connection or zkwire's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from kombu import Connection, Consumer, Producer, Queue

PATIENCE = 10
NAME = "queue"


@pytest.fixture
def connection() -> Iterator[Any]:
    with Connection(f"zookeeper://{os.environ['ZOOKEEPER_HOSTS']}/{uuid4().hex}") as connection:
        yield connection
        for channel in connection.transport.channels or ():
            channel.client.stop()
            channel.client.close()


def test_a_simple_queue_keeps_the_order_and_is_cleared(connection: Any) -> None:
    with connection.SimpleQueue(NAME) as queue:
        for body in ({"a": [1, 2]}, "x" * 600_000, 3, 4):
            queue.put(body)
        assert queue.get(timeout=PATIENCE).payload == {"a": [1, 2]}
        assert queue.get(timeout=PATIENCE).payload == "x" * 600_000
        assert queue.clear() == 2
        with pytest.raises(queue.Empty):
            queue.get(block=False)


def test_the_priority_decides_the_order(connection: Any) -> None:
    with connection.SimpleQueue(NAME) as queue:
        for priority in (1, 9, 5):
            queue.put(priority, priority=priority)
        assert [queue.get(timeout=PATIENCE).payload for _ in range(3)] == [9, 5, 1]


def test_another_connection_and_a_consumer_get_what_is_published(connection: Any) -> None:
    got: list[Any] = []
    queue, producer = Queue(NAME, routing_key=NAME), Producer(connection.channel())
    with Consumer(connection.channel(), [queue], callbacks=[lambda body, _: got.append(body)]):
        producer.publish({"n": 1}, routing_key=NAME, declare=[queue])
        connection.drain_events(timeout=PATIENCE)
    assert got == [{"n": 1}]
    producer.publish("for the other", routing_key=NAME)
    with connection.clone() as other, other.SimpleQueue(NAME) as same:
        assert same.get(timeout=PATIENCE).payload == "for the other"


def test_a_deleted_queue_is_declared_again(connection: Any) -> None:
    channel = connection.channel()
    queue = Queue(NAME, routing_key=NAME)(channel)
    queue.declare()
    queue.delete()
    queue.declare()
    assert channel._size(NAME) == 0
