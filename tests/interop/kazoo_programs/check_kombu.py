"""Ten checks of kombu's ZooKeeper transport, on the server of ZOOKEEPER_HOSTS.

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


@pytest.fixture
def connection() -> Iterator[Any]:
    with Connection(f"zookeeper://{os.environ['ZOOKEEPER_HOSTS']}/{uuid4().hex}") as connection:
        yield connection
        for channel in connection.transport.channels or ():
            channel.client.stop()
            channel.client.close()


@pytest.fixture
def name() -> str:
    return f"queue-{uuid4().hex}"


def test_a_simple_queue_gives_what_was_put(connection: Any, name: str) -> None:
    with connection.SimpleQueue(name) as queue:
        queue.put({"a": [1, 2]})
        message = queue.get(timeout=PATIENCE)
        message.ack()
        assert message.payload == {"a": [1, 2]}


def test_a_simple_queue_keeps_the_order(connection: Any, name: str) -> None:
    with connection.SimpleQueue(name) as queue:
        for number in range(20):
            queue.put(number)
        assert [queue.get(timeout=PATIENCE).payload for _ in range(20)] == list(range(20))


def test_a_simple_queue_knows_its_size(connection: Any, name: str) -> None:
    with connection.SimpleQueue(name) as queue:
        for number in range(7):
            queue.put(number)
        assert queue.qsize() == 7


def test_an_empty_queue_is_empty(connection: Any, name: str) -> None:
    with connection.SimpleQueue(name) as queue, pytest.raises(queue.Empty):
        queue.get(block=False)


def test_a_simple_queue_is_cleared(connection: Any, name: str) -> None:
    with connection.SimpleQueue(name) as queue:
        for number in range(5):
            queue.put(number)
        assert queue.clear() == 5
        with pytest.raises(queue.Empty):
            queue.get(block=False)


def test_a_consumer_gets_what_a_producer_publishes(connection: Any, name: str) -> None:
    got: list[Any] = []
    producer = Producer(connection.channel())
    consuming = connection.channel()
    queue = Queue(name, routing_key=name)
    with Consumer(consuming, [queue], callbacks=[lambda body, message: got.append(body)]):
        producer.publish({"n": 1}, routing_key=name, declare=[queue])
        connection.drain_events(timeout=PATIENCE)
    assert got == [{"n": 1}]


def test_the_priority_decides_the_order(connection: Any, name: str) -> None:
    with connection.SimpleQueue(name) as queue:
        for priority in (1, 9, 5):
            queue.put(priority, priority=priority)
        assert [queue.get(timeout=PATIENCE).payload for _ in range(3)] == [9, 5, 1]


def test_a_large_message_comes_whole(connection: Any, name: str) -> None:
    body = "x" * 600_000
    with connection.SimpleQueue(name) as queue:
        queue.put(body)
        assert queue.get(timeout=PATIENCE).payload == body


def test_a_second_connection_sees_the_queue(connection: Any, name: str) -> None:
    with connection.SimpleQueue(name) as queue:
        queue.put("from the first")
        with connection.clone() as other, other.SimpleQueue(name) as same:
            assert same.get(timeout=PATIENCE).payload == "from the first"


def test_a_deleted_queue_is_declared_again(connection: Any, name: str) -> None:
    channel = connection.channel()
    queue = Queue(name, routing_key=name)(channel)
    queue.declare()
    queue.delete()
    queue.declare()
    assert channel._size(name) == 0
