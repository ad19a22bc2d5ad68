"""An operation that the server does not know: whose calls that may end, and what is asked again."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from tests.support.lock_helpers import Running
from tests.support.scripted import (
    NO_NODE,
    TIMEOUT,
    Script,
    armed,
    failure,
    maybe_applied,
    reply_frame,
    script_in,
    types,
)
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import AsyncClient, Client
from zkwire.errors import NotSentError, OutcomeUnknownError, UnimplementedError
from zkwire.session.request import Request
from zkwire.session.watch import Watch
from zkwire.testing import Server
from zkwire.testing.proxy.faults import Gate, hold
from zkwire.wire import ops
from zkwire.wire.model import EventType, State

PATIENCE = 30.0
UNKNOWN = UnimplementedError.code


def refuse(script: Script, call: Request) -> None:
    """The server does not know what was called."""
    script.answer(call, error=UNKNOWN, zxid=-1)


def refused_once() -> Script:
    """On the connection next to the one that who_am_i has cost."""
    script = script_in(State.CONNECTED)
    refuse(script, script.call("who_am_i"))
    script.reconnect()
    return script


# --- the connection on which it is asked for ------------------------------------------------------


def test_known_A47_the_refusal_overtakes_and_others_get_their_answers() -> None:
    """Apache's server sends it past its pipeline; answers may come even to what is behind it."""
    script = script_in(State.CONNECTED)
    before, asked = script.call("set_data", "/a", b""), script.call("who_am_i")
    behind, lost = script.call("set_data", "/b", b""), script.call("set_data", "/c", b"")
    again = script.call("who_am_i")
    script.flush()
    refuse(script, asked)
    script.answer(before)
    script.answer(behind)
    assert script.session.broken is None
    script.lose(why="the server closed it")
    assert [failure(call) for call in (before, asked, behind, lost, again)] == [
        None, UnimplementedError, None, OutcomeUnknownError, UnimplementedError,
    ]  # fmt: skip
    assert maybe_applied(lost)
    assert "who_am_i" in str(lost.error())


def test_one_connection_can_bring_two_refusals() -> None:
    script = script_in(State.CONNECTED)
    asked, also = script.call("who_am_i"), script.call("get_ephemerals")
    script.flush()
    refuse(script, asked)
    leaves_at = script.session.act_at
    script.now += 0.5
    refuse(script, also)
    assert script.session.act_at == leaves_at, "the time to leave the server counts from the first"
    assert [failure(call) for call in (asked, also)] == [UnimplementedError] * 2


def test_nothing_goes_into_a_connection_that_the_server_is_closing() -> None:
    """What was submitted before the refusal came ends unsent, what comes later is sent later."""
    script = script_in(State.CONNECTED)
    asked = script.call("who_am_i")
    script.flush()
    unsent = script.call("set_data", "/a", b"")
    refuse(script, asked)
    watch = Watch()
    late = script.call("get_data", "/b", watch=watch)
    script.session.add_auth("digest", b"a:b")
    assert script.names() == []
    script.lose()
    assert failure(unsent) is NotSentError
    script.connect()
    script.answer(late)
    assert failure(late) is None
    assert armed(watch)


def test_a_server_that_does_not_close_is_left_in_time() -> None:
    script = script_in(State.CONNECTED)
    refuse(script, script.call("who_am_i"))
    late = script.call("set_data", "/a", b"")
    script.advance(TIMEOUT / 2)
    assert script.state is not State.CONNECTED
    script.connect()
    script.answer(late)
    assert failure(late) is None


def test_what_is_switched_off_costs_no_connection() -> None:
    """It is refused inside of the pipeline, with a zxid, as TTL nodes are, and ``reconfig``."""
    script = script_in(State.CONNECTED)
    for _ in range(2):
        call = script.call("create", "/a", ttl=1.0)
        script.answer(call, error=UNKNOWN)
        assert failure(call) is UnimplementedError
        assert script.session.usable


# --- and those after it ---------------------------------------------------------------------------


def test_the_server_is_not_asked_again_while_it_may_be_the_same() -> None:
    script = refused_once()
    call = script.call("who_am_i")
    assert failure(call) is UnimplementedError
    assert script.session.push(Request(ops.WHO_AM_I)) == 0
    assert script.session.send_alone(Request(ops.WHO_AM_I), script.now) == b""
    assert script.names() == []
    script.reconnect()  # for another reason: the next server may be newer
    script.call("who_am_i")
    assert script.names() == ["who_am_i"]


def test_what_came_later_is_refused_too_and_what_came_earlier_is_asked_for() -> None:
    script = script_in(State.CONNECTED)
    refuse(script, script.call("get_ephemerals"))
    script.reconnect()
    assert failure(script.call("who_am_i")) is UnimplementedError
    script.call("create_with_stat", "/a")
    assert script.names() == ["create2"]


def test_what_was_asked_for_in_between_is_refused_without_being_sent() -> None:
    script = script_in(State.CONNECTED)
    refuse(script, script.call("add_watch", "/a", Watch()))
    watch = Watch()
    call = script.call("add_watch", "/a", watch)
    read = script.call("get_data", "/b", watch=Watch())
    script.reconnect()
    assert failure(call) is UnimplementedError
    assert not armed(watch)
    script.answer(read)
    assert failure(read) is None


def test_another_server_is_asked() -> None:
    """The refused connection is followed by one to the same server, if that can be reached."""
    script = Script(servers=2)
    script.connect()
    first = script.session.server
    refuse(script, script.call("who_am_i"))
    script.reconnect()
    assert script.session.server == first
    refuse(script, script.call("get_ephemerals"))
    script.lose()
    script.now = script.session.act_at
    script.session.on_deadline(script.now)
    assert script.session.server == first
    script.lose(0, "refused")
    script.connect()
    assert script.session.server != first
    script.call("who_am_i")
    assert script.names() == ["who_am_i"]


def test_another_address_of_the_same_name_is_asked() -> None:
    script = script_in(State.CONNECTED)
    refuse(script, script.call("who_am_i"))
    script.lose()
    script.session.on_deadline(script.session.act_at)
    script.session.connection_made(script.now, (2, ("127.0.0.2", 2181)))
    script.sent = []
    script.flush()
    script.welcome()
    script.call("who_am_i")
    assert script.names() == ["who_am_i"]


def test_a_server_that_cannot_take_watches_away_is_told_once() -> None:
    script = script_in(State.CONNECTED)
    script.watching("get_data", "/a").close()
    (asked,) = script.flush()
    script.feed(reply_frame(asked.xid, -1, UNKNOWN))
    script.reconnect()
    script.watching("get_data", "/b").close()
    assert script.names() == []
    removed = script.call("remove_watches", "/b")
    assert failure(removed) is not None
    assert script.names() == []


def test_watches_are_removed_here_though_the_server_cannot_remove_them() -> None:
    script = script_in(State.CONNECTED)
    script.watching("get_data", "/a").close()
    (asked,) = script.flush()
    script.feed(reply_frame(asked.xid, -1, UNKNOWN))
    script.reconnect()
    watch = script.watching("get_data", "/b")
    removed = script.call("remove_watches", "/b")
    assert failure(removed) is UnimplementedError
    assert types(watch) == [EventType.DATA_WATCH_REMOVED]
    assert script.names() == []


def test_persistent_watches_end_where_no_server_knows_them() -> None:
    """A newer one had set them, in the middle of an upgrade: the next server may be new, too."""
    script = Script(servers=2)
    script.connect()
    watch, other = script.persistent("/a"), script.watching_missing("/b")
    for attempt in range(2):
        assert types(watch) == []
        script.greet_again() if attempt == 0 else script.greet()
        assert script.names() == ["set_watches2"]
        script.feed(reply_frame(ops.SET_WATCHES_XID, -1, UNKNOWN))
        assert "3.6" in (script.session.broken or "")
        script.lose()
    assert types(watch) == [EventType.PERSISTENT_WATCH_REMOVED]
    script.greet()
    (restored,) = script.restore()
    assert restored.set_watches().exist_watches == ("/b",)
    script.answer(script.call("exists", "/b"), error=NO_NODE)
    assert armed(other)


# --- over sockets ---------------------------------------------------------------------------------


def test_another_threads_write_is_answered() -> None:
    """All is on its way before the server reads it, so the refusal overtakes for certain."""
    gate = Gate()
    with Server(version="3.6") as server, Client(server.hosts) as client:
        client.create("/n")
        server.on("sync", action=hold(gate))
        held = client.pipeline.sync()
        write, asked = client.pipeline.set_data("/n", b"1"), client.pipeline.who_am_i()
        client._driver.flush()
        gate.release()
        held.result(PATIENCE)
        assert write.result(PATIENCE).version == 1
        with pytest.raises(UnimplementedError):
            asked.result(PATIENCE)
        for number in range(2, 100):  # none of these falls into the gap
            assert client.set_data("/n", b"").version == number


async def test_another_tasks_write_is_answered() -> None:
    gate = Gate()
    with Server(version="3.6") as server:
        async with AsyncClient(server.hosts) as client:
            await client.create("/n")
            server.on("sync", action=hold(gate))
            held = client.sync()
            write, asked = client.set_data("/n", b"1"), client.who_am_i()
            client._driver.flush()
            gate.release()
            await held
            assert (await write).version == 1
            with pytest.raises(UnimplementedError):
                await asked
            for number in range(2, 100):
                assert (await client.set_data("/n", b"")).version == number


@pytest.mark.real
def test_known_A47_an_operation_that_no_server_knows(
    zookeeper: ZooKeeperServer, fresh_path: str
) -> None:
    """A real one: what another thread has sent by then is answered, or executed or not.

    What it has not sent by then raises NotSentError, and is not executed.
    """
    unheard_of = [ops.Op(f"unheard_of_{n}", 9000 + n, None, None) for n in range(10)]
    asked_all = threading.Event()
    done = unknown = 0

    with Client(zookeeper.hosts) as client:
        client.create(fresh_path)

        def write() -> None:
            nonlocal done, unknown
            while not asked_all.is_set():
                try:
                    client.set_data(fresh_path, b"")
                    done += 1
                except NotSentError:
                    continue
                except OutcomeUnknownError:
                    unknown += 1

        def written_since(before: int) -> bool | None:
            return done > before or writer.ended or None

        writer = Running(write)
        for op in unheard_of:
            poll("a write is answered", partial(written_since, done), PATIENCE)
            with pytest.raises(UnimplementedError):
                client.pipeline._send(op, None, b"", None).result(PATIENCE)
        asked_all.set()
        writer.result(PATIENCE)
        stat = client.exists(fresh_path)
        assert stat is not None
        assert unknown <= len(unheard_of)
        assert done <= stat.version <= done + unknown
