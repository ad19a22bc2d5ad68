"""The asyncio client as its users see it: operations, order, limits, misuse, the end."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import itertools
import logging
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest

import zkwire
from tests.shell.test_client import REFUSALS, refused_port, within
from tests.shell.test_client_threads import in_child
from tests.support.aio_helpers import (
    asynchronous,
    blocking,
    complaints,
    eventually,
    library_threads,
    run,
    spinning,
)
from tests.support.fake_server import Connection, FakeServer, deaf, echo, mute, serve, silent
from tests.support.lock_helpers import PATIENCE
from tests.support.secure_servers import USERS, SecureServer
from zkwire import (
    AsyncBlockingLock,
    AsyncClient,
    AsyncNonBlockingLock,
    AsyncSequentialLock,
    AsyncTransaction,
    AuthFailedError,
    BlockingLock,
    Check,
    Client,
    ClientClosedError,
    Create,
    DigestMD5,
    Event,
    EventType,
    ForkedError,
    GetData,
    NonBlockingLock,
    NoNodeError,
    NotReadOnlyError,
    NotSentError,
    OperationTimeoutError,
    OutcomeUnknownError,
    Perms,
    SequentialLock,
    ServerError,
    SetData,
    State,
    TraceFrame,
    Transaction,
    UnimplementedError,
    Watch,
    ZooKeeperError,
)
from zkwire.net.connection import INTERRUPTED
from zkwire.net.dial import shut_down
from zkwire.net.pipeline import Pipeline
from zkwire.operations import Operations
from zkwire.session.waitable import Awaited, Waitable
from zkwire.testing import FaultProxy, Server, VirtualClock
from zkwire.testing.proxy.proxy import Gate, hold

# What takes longer does not end by itself.
SLACK = 2.0
CLOSE_BOUND = 1.0 + SLACK
OPERATIONS = sorted(name for name in dir(Operations) if not name.startswith("_"))


@pytest.fixture(params=["fake", "embedded", pytest.param("real", marks=pytest.mark.real)])
def hosts(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that serves, of each of the three kinds."""
    if request.param == "real":
        yield request.getfixturevalue("zookeeper").hosts
    elif request.param == "embedded":
        with Server() as embedded:
            yield embedded.hosts
    else:
        with FakeServer() as fake:
            yield fake.hosts


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def whole(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that knows every operation."""
    if request.param == "real":
        yield request.getfixturevalue("zookeeper").hosts
    else:
        with Server() as embedded:
            yield embedded.hosts


# --- the same face --------------------------------------------------------------------------------

FACES: list[tuple[type, type]] = [
    (Client, AsyncClient),
    (Transaction, AsyncTransaction),
    (NonBlockingLock, AsyncNonBlockingLock),
    (BlockingLock, AsyncBlockingLock),
    (SequentialLock, AsyncSequentialLock),
]
# Enter and exit, which are spelt otherwise; an operation's own pipeline, which a reply makes idle.
ONLY_BLOCKING = {"pipeline"}
# What needs a task.
ONLY_ASYNC = {"cancel_on_loss"}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def shape(member: Any) -> list[tuple[str, Any, Any, Any]]:
    parameters = inspect.signature(member).parameters.values()
    return [(p.name, p.kind, p.default, p.annotation) for p in parameters if p.name != "self"]


@pytest.mark.parametrize(("one", "other"), FACES, ids=lambda kind: kind.__name__)
def test_both_worlds_have_the_same_names_arguments_and_texts(one: type, other: type) -> None:
    assert public(one) - ONLY_BLOCKING == public(other) - ONLY_ASYNC
    for name in public(one) - ONLY_BLOCKING:
        ours, theirs = getattr(one, name), getattr(other, name)
        assert isinstance(ours, property) == isinstance(theirs, property), name
        assert ours.__doc__, name
        assert theirs.__doc__, name
        if isinstance(ours, property):
            assert ours.__doc__ == theirs.__doc__, name
            continue
        assert shape(ours) == shape(theirs), name
        if name in OPERATIONS:
            assert ours.__doc__ == theirs.__doc__, name
    assert (
        shape(one)[1 if "Lock" in one.__name__ or one is Transaction else 0 :]
        == (shape(other)[1 if "Lock" in one.__name__ or one is Transaction else 0 :])
    )


def test_every_operation_of_the_client_is_one_of_the_async_client() -> None:
    assert set(OPERATIONS) == public(Pipeline)
    for name in OPERATIONS:
        assert getattr(AsyncClient, name) is getattr(Operations, name), "not the one definition"
        assert not inspect.iscoroutinefunction(getattr(AsyncClient, name)), "it would start late"
    for name in ("connect", "close", "detach", "wait_for_state", "ensure_path", "delete_tree"):
        assert inspect.iscoroutinefunction(getattr(AsyncClient, name)), name


def test_each_result_is_that_of_the_blocking_client(whole: str, fresh_path: str) -> None:
    """A script of every operation, carried out by each client below a root of its own."""
    with Client(whole) as client:

        def direct(verb: str, *args: Any, **kwargs: Any) -> Any:
            return getattr(client, verb)(*args, **kwargs)

        expected = list(drive(script(f"{fresh_path}-b"), direct))

    async def main() -> list[Any]:
        async with AsyncClient(whole) as other:
            steps, seen = script(f"{fresh_path}-a"), []
            answer = None
            with suppress(StopIteration):
                while True:
                    verb, args, kwargs = steps.send(answer)
                    try:
                        answer = await getattr(other, verb)(*args, **kwargs)
                    except ZooKeeperError as error:
                        answer = error
                    seen.append((verb, normal(answer)))
            return seen

    got = run(main)
    assert got == expected
    # ensure_path and delete_tree are in the script, too; so is what a server may refuse.
    assert {verb for verb, _ in got} >= set(OPERATIONS)


def drive(steps: Any, ask: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    answer = None
    with suppress(StopIteration):
        while True:
            verb, args, kwargs = steps.send(answer)
            try:
                answer = ask(verb, *args, **kwargs)
            except ZooKeeperError as error:
                answer = error
            yield verb, normal(answer)


def script(root: str) -> Any:
    """Every operation at least once, good and refused."""

    def ask(verb: str, *args: Any, **kwargs: Any) -> Any:
        return verb, args, kwargs

    yield ask("add_auth", "digest", b"me:secret")
    yield ask("ensure_path", f"{root}/a/b")
    yield ask("create", f"{root}/n", b"one")
    yield ask("create", f"{root}/n", b"one")
    yield ask("create_with_stat", f"{root}/s-", b"x", sequential=True)
    yield ask("create", f"{root}/e", ephemeral=True)
    yield ask("create", f"{root}/c", container=True)
    yield ask("set_data", f"{root}/n", b"two", 0)
    yield ask("set_data", f"{root}/n", b"two", 0)
    yield ask("get_data", f"{root}/n")
    yield ask("exists", f"{root}/n")
    yield ask("exists", f"{root}/none")
    yield ask("get_children", root)
    yield ask("get_children_with_stat", root)
    yield ask("get_all_children_number", root)
    yield ask("get_ephemerals", root)
    yield ask("get_acl", f"{root}/n")
    yield ask("set_acl", f"{root}/n", zkwire.CREATOR_ALL_ACL)
    yield ask("get_acl", f"{root}/n")
    yield ask("sync", root)
    yield ask("multi", [Create(f"{root}/m", b"1"), SetData(f"{root}/m", b"2"), Check(root)])
    yield ask("multi", [Create(f"{root}/m", b"1"), SetData(f"{root}/m", b"2")])
    yield ask("multi_read", [GetData(f"{root}/m"), GetData(f"{root}/none")])
    yield ask("add_watch", root, Watch(), recursive=True)
    yield ask("remove_watches", root)
    yield ask("remove_watches", root)
    yield ask("who_am_i")
    yield ask("get_config")
    yield ask("reconfig", leaving=["9"])
    yield ask("delete", f"{root}/n", 1)
    yield ask("delete", root)
    yield ask("delete_tree", root)
    yield ask("exists", root)


def normal(value: Any) -> Any:
    """Without what differs between two roots and two moments."""
    if isinstance(value, ZooKeeperError):
        return (type(value).__name__, value.op, cut(value.path or ""), value.maybe_applied)
    if isinstance(value, zkwire.Stat):
        return ("stat", value.version, value.aversion, value.data_length, value.num_children)
    if isinstance(value, Watch):
        return "a watch"
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, bytes):
        return value
    if isinstance(value, list | tuple):
        items = [normal(item) for item in value]
        return sorted(items, key=repr) if all(isinstance(i, str) for i in items) else items
    return value


def cut(path: str) -> str:
    head, _, rest = path.removeprefix("/").partition("/")
    return f"/root/{rest}" if head[:2] == "t-" else path


def test_import_loads_no_asyncio() -> None:
    code = (
        "import sys, zkwire\n"
        "zkwire.Client('h'); zkwire.SequentialLock(zkwire.Client('h'), '/a'); zkwire.Watch()\n"
        "assert 'asyncio' not in sys.modules, 'asyncio is loaded'\n"
        "assert not [m for m in sys.modules if m.startswith('zkwire.aio')]\n"
        "zkwire.AsyncClient\n"
        "assert 'asyncio' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


# --- operations -----------------------------------------------------------------------------------


@asynchronous
async def test_refusals_have_classes_of_their_own(hosts: str, fresh_path: str) -> None:
    async with AsyncClient(hosts) as client:
        await client.create(fresh_path)
        await client.create(f"{fresh_path}/child")
        for expected, verb, arguments in REFUSALS:
            filled = [a.format(fresh_path) if isinstance(a, str) else a for a in arguments]
            with pytest.raises(expected) as caught:
                await getattr(client, verb)(*filled)
            assert type(caught.value) is expected
            assert (caught.value.path, caught.value.maybe_applied) == (filled[0], False)


@asynchronous
async def test_conveniences(whole: str, fresh_path: str) -> None:
    async with AsyncClient(whole) as client:
        await client.ensure_path(f"{fresh_path}/a/b")
        await client.create(f"{fresh_path}/c")
        found = [path async for path in client.walk(fresh_path)]
        assert found[0] == fresh_path
        assert sorted(found[1:]) == [f"{fresh_path}/{n}" for n in ("a", "a/b", "c")]
        async with client.transaction() as t:
            t.check(fresh_path)
            t.create(f"{fresh_path}/t", b"x")
        assert t.results == [None, f"{fresh_path}/t"]
        async with client.transaction() as t:
            t.create(f"{fresh_path}/once")
            await t.commit()
        with pytest.raises(KeyError):
            await _raising(client.transaction(), fresh_path)
        await client.delete_tree(fresh_path)
        assert await client.exists(fresh_path) is None
        walk = client.walk("/")
        async for _ in walk:
            break
        with pytest.raises(NoNodeError):
            async for _ in client.walk(fresh_path):
                pass


async def _raising(transaction: AsyncTransaction, path: str) -> None:
    async with transaction as t:
        t.delete(path)
        raise KeyError


@asynchronous
async def test_chroot_and_properties(hosts: str, fresh_path: str) -> None:
    async with AsyncClient(hosts, session_timeout=6.0) as client:
        assert client.state is State.CONNECTED
        assert client.session_id != 0
        assert 0 < client.lease_remaining() <= 6.0
        assert "AsyncClient" in repr(client)
        await client.create(fresh_path)
        async with AsyncClient(hosts + fresh_path) as inside:
            assert await inside.create("/a", b"1") == "/a"
        assert (await client.get_data(f"{fresh_path}/a")).data == b"1"
    assert (state_of(client), client.lease_remaining()) == (State.CLOSED, 0.0)


def state_of(client: AsyncClient) -> State:
    """For a type checker, which does not expect a property to change."""
    return client.state


@asynchronous
async def test_big_payloads_both_ways(whole: str, fresh_path: str) -> None:
    data = bytes(range(256)) * 3600
    async with AsyncClient(whole) as client:
        await client.create(fresh_path)
        for number in range(4):
            stat, seen = await asyncio.gather(
                client.set_data(fresh_path, data), client.get_data(fresh_path)
            )
            assert (stat.version, seen.data == data) == (number + 1, True)


# --- the order of the calls -----------------------------------------------------------------------


@asynchronous
async def test_requests_leave_in_the_order_of_the_calls(hosts: str, fresh_path: str) -> None:
    """Whoever awaits what, and when, and whether at all."""
    with FaultProxy(hosts) as proxy:
        async with AsyncClient(proxy.hosts) as client:
            await client.create(fresh_path)
            proxy.reset()
            replies = {}

            async def some(name: str) -> None:
                for number in range(20):
                    path = f"/{name}{number}"
                    called.append(path)
                    replies[path] = client.exists(path)
                    if number % 3 == 0:
                        await replies[path]

            called: list[str] = []
            await asyncio.gather(some("a"), some("b"), some("c"))
            for path in reversed(called):
                assert await replies[path] is None
            seen = [f.path for f in proxy.frames() if f.op == "exists" and f.direction == "c2s"]
            assert seen == called


@asynchronous
async def test_collected_first_and_awaited_later_often_and_by_several(hosts: str) -> None:
    async with AsyncClient(hosts) as client:
        first = client.exists("/a")
        second = client.get_data("/none")
        assert not first.ready
        assert await client.exists("/b") is None
        assert first.ready, "replies come in order"

        async def waiting() -> Any:
            with suppress(NoNodeError):
                return await second
            return "no node"

        assert await asyncio.gather(waiting(), waiting()) == ["no node"] * 2
        assert [await first, await first] == [None, None]
        assert first.result() is None
        errors = []
        for _ in range(2):
            with pytest.raises(NoNodeError) as caught:
                await second
            errors.append(caught.value)
        assert errors[0] is not errors[1], "a traceback would grow"
        unfinished = client.exists("/c")
        with pytest.raises(RuntimeError, match="not ended"):
            unfinished.result()
        two = [asyncio.ensure_future(_await(unfinished)) for _ in range(2)]
        assert await asyncio.gather(*two) == [None, None]


async def _await(reply: Any) -> Any:
    return await reply


@asynchronous
async def test_never_awaited_is_no_fault(hosts: str, fresh_path: str) -> None:
    """Neither a warning nor anything left, and it is executed."""
    async with AsyncClient(hosts) as client:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            client.create(fresh_path)
            client.get_data("/")
            await client.sync()
            gc.collect()
        assert await client.exists(fresh_path) is not None
        assert not client._session.unanswered


@asynchronous
async def test_ten_thousand_at_once(whole: str, fresh_path: str) -> None:
    async with AsyncClient(whole) as client:
        await client.create(fresh_path, b"x")
        asyncio.get_running_loop().set_debug(False)
        answers = await asyncio.gather(*(client.get_data(fresh_path) for _ in range(10_000)))
        assert {answer.data for answer in answers} == {b"x"}
        assert not client._session.unanswered


@asynchronous
async def test_sixteen_tasks_of_a_thousand_operations() -> None:
    """Each answer is the one to its own request: this server echoes the path."""
    with FakeServer(echo) as server:
        async with AsyncClient(server.hosts) as client:
            asyncio.get_running_loop().set_debug(False)

            async def work(task: int) -> int:
                for number in range(1000):
                    path = f"/{task}-{number}"
                    assert (await client.get_data(path)).data == path.encode()
                return task

            assert await asyncio.gather(*map(work, range(16))) == list(range(16))
        assert server.count("get_data") == 16_000


@asynchronous
async def test_context_variables_are_the_callers(hosts: str) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")

    async def one(number: int) -> int:
        variable.set(number)
        await client.exists("/")
        return variable.get()

    async with AsyncClient(hosts) as client:
        assert await asyncio.gather(*map(one, range(5))) == list(range(5))


# --- limits ---------------------------------------------------------------------------------------


@asynchronous
async def test_operation_timeout() -> None:
    with FakeServer(mute) as server:
        async with AsyncClient(server.hosts, operation_timeout=0.05) as client:
            with within(0.05 + SLACK), pytest.raises(OperationTimeoutError) as caught:
                await client.create("/a")
            assert caught.value.maybe_applied, "it was sent"
            assert "stays in effect" in str(caught.value)
            with pytest.raises(OperationTimeoutError) as caught:
                await client.exists("/a")
            assert not caught.value.maybe_applied
            with pytest.raises(OperationTimeoutError):
                await client.ensure_path("/a/b")


@asynchronous
async def test_operation_timeout_takes_back_what_was_not_sent() -> None:
    with FakeServer() as server:
        async with AsyncClient(server.hosts, operation_timeout=0.05) as client:
            server.stop_listening()
            server.reset_all()
            await client.wait_for_state(State.DISCONNECTED, timeout=PATIENCE)
            with pytest.raises(OperationTimeoutError) as caught:
                await client.create("/a")
            assert not caught.value.maybe_applied
            assert "withdrawn unsent" in str(caught.value)
            assert client._session.queued == 0


@asynchronous
async def test_asyncio_timeout_around_one_operation() -> None:
    gate = Gate()
    with Server() as server, FaultProxy(server.hosts) as proxy:
        async with AsyncClient(proxy.hosts) as client:
            proxy.on("exists", action=hold(gate), reply=True)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.exists("/")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(_await(client.get_data("/")), 0.05)
            gate.release()
            assert (await client.get_data("/")).data == b"", "in step"
            assert not client._session.unanswered


@pytest.mark.parametrize("endless", [float("inf"), 1e300, 1e10], ids=repr)
@asynchronous
async def test_a_time_limit_may_be_as_long_as_one_likes(endless: float) -> None:
    with FakeServer() as server:
        async with AsyncClient(server.hosts, operation_timeout=endless) as client:
            await client.connect(endless)
            assert await client.exists("/a") is None
            state = await client.wait_for_state(State.CONNECTED, timeout=endless)
            assert state is State.CONNECTED
            with pytest.raises(ValueError, match="timeout must"):
                await client.connect(-1)
            with pytest.raises(TypeError, match="one or more"):
                await client.wait_for_state()
            assert await client.wait_for_state(State.EXPIRED, timeout=0.01) is None


# --- misuse ---------------------------------------------------------------------------------------


def test_without_a_loop_there_is_a_clear_error() -> None:
    client = AsyncClient("127.0.0.1:1")
    watch = Watch()
    for ask in (
        lambda: client.exists("/a"),
        lambda: client.get_data("/a", watch=watch),
        lambda: client.create("/a"),
    ):
        with pytest.raises(RuntimeError, match="no running event loop"):
            ask()
    assert client.state is State.NOT_STARTED
    assert client._session.queued == 0
    asyncio.run(client.close())


def test_another_loop_is_refused_and_harms_nothing() -> None:
    """The client's loop goes on meanwhile; what was asked for there is answered there."""
    gate = Gate()
    refused: list[str] = []

    async def elsewhere(client: AsyncClient, reply: Any, watch: Watch) -> None:
        async def call() -> None:
            await client.exists("/")

        async def walk() -> None:
            async for _ in client.walk("/"):
                pass

        for ask in (
            call,
            client.connect,
            client.close,
            client.detach,
            lambda: client.wait_for_state(State.CLOSED),
            lambda: client.ensure_path("/a"),
            lambda: _await(reply),
            lambda: _await(watch),
            AsyncSequentialLock(client, "/lock").try_acquire,
            walk,
        ):
            with pytest.raises(RuntimeError, match="another event loop"):
                await ask()
            refused.append("")

    async def main() -> None:
        with Server() as server, FaultProxy(server.hosts) as proxy:
            async with AsyncClient(proxy.hosts) as client:
                watch = Watch()
                await client.exists("/new", watch=watch)
                proxy.on("get_data", action=hold(gate))
                reply = client.get_data("/")
                late = client.create("/late")
                await blocking(lambda: asyncio.run(elsewhere(client, reply, watch)))
                gate.release()
                assert (await reply).data == b""
                assert await late == "/late"
                assert client.state is State.CONNECTED
                await client.create("/new")
                assert (await watch).type is EventType.NODE_CREATED

    run(main)
    assert len(refused) == 10


def test_use_after_the_loop_has_ended() -> None:
    """Whoever forgot to close it: a clear error in the next loop, and close lets go."""
    with Server() as server:
        client = AsyncClient(server.hosts)

        async def use() -> None:
            await client.exists("/")

        asyncio.run(use())
        with pytest.raises(RuntimeError, match="another event loop"):
            asyncio.run(use())
        asyncio.run(client.close())
        assert client.state is State.CLOSED
        with pytest.raises(RuntimeError, match="another event loop"):
            asyncio.run(client.connect())


@asynchronous
async def test_after_close(hosts: str) -> None:
    client = AsyncClient(hosts)
    watch = Watch()
    async with client:
        await client.exists("/none", watch=watch)
    for ask in (
        lambda: client.exists("/"),
        lambda: client.get_data("/", watch=Watch()),
        lambda: client.remove_watches("/none"),
        lambda: client.multi([]),
    ):
        with pytest.raises(ClientClosedError):
            ask()
    for waiting in (
        client.connect(),
        client.detach(),
        client.ensure_path("/a"),
        _await(watch),
        AsyncSequentialLock(client, "/lock").acquire(),
        client.__aenter__(),
    ):
        with pytest.raises(ClientClosedError):
            await waiting
    with pytest.raises(ClientClosedError):
        _ = client.credentials
    assert await client.wait_for_state(State.CONNECTED) is State.CLOSED
    await client.close()


@asynchronous
async def test_blocking_waits_are_refused_with_the_reason(hosts: str) -> None:
    async with AsyncClient(hosts) as client:
        watch = Watch()
        await client.exists("/none", watch=watch)
        with within(1.0), pytest.raises(RuntimeError, match="block the event loop: use await"):
            watch.wait()
        with within(1.0), pytest.raises(RuntimeError, match="block the event loop: use await"):
            watch.wait(5.0)
        assert watch.wait(0) is None
        with pytest.raises(RuntimeError, match="block the event loop"):
            next(iter(watch))
        lost = AsyncSequentialLock(client, "/lock").lost
        with within(1.0), pytest.raises(RuntimeError, match="block the event loop"):
            lost.wait(5.0)
        assert lost.wait(0) is False
    with Client(hosts) as threaded:
        unasked = Watch()
        threaded.exists("/none", watch=unasked)
        with pytest.raises(RuntimeError, match="await belongs to AsyncClient"):
            await unasked


@asynchronous
async def test_wrong_arguments_are_refused_and_nothing_sent() -> None:
    with FakeServer() as server:
        async with AsyncClient(server.hosts) as client:
            with pytest.raises(ValueError, match="start with '/'"):
                client.exists("a")
            with pytest.raises(TypeError, match=r"use \.encode"):
                client.set_data("/a", "text")  # type: ignore[arg-type]
            await client.exists("/marker")
            assert [(r.xid, r.op) for r in server.received] == [(1, "exists")]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@asynchronous
async def test_a_forked_child_is_refused_and_the_parent_goes_on(hosts: str) -> None:
    async with AsyncClient(hosts, session_timeout=6.0) as client:
        await client.exists("/")
        session_id = client.session_id
        reply = client.exists("/")

        def child() -> None:
            async def use() -> None:
                async def call() -> None:
                    await client.exists("/")

                for ask in (call, client.connect, lambda: _await(reply)):
                    with pytest.raises(ForkedError):
                        await ask()
                await client.close()

            assert client.lease_remaining() == 0.0
            asyncio.run(use())

        in_child(child)
        assert (await reply) is not None
        for _ in range(10):
            assert await client.exists("/") is not None
        assert client.session_id == session_id


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@asynchronous
async def test_a_forked_child_that_goes_on_with_the_loop_leaves_the_session_alone() -> None:
    """Nothing that was planned in the parent's loop happens in the child's."""
    with FakeServer() as server:
        async with AsyncClient(server.hosts, session_timeout=0.3) as client:
            await client.exists("/")
            driver = client._driver.io
            assert driver is not None

            def child() -> None:
                time.sleep(0.5)  # everything is overdue now: pings, the connection's end
                for _ in range(3):
                    driver.turn()
                driver.wake()
                assert client._driver.current_connection is None
                state = client._session.state
                assert state is State.CONNECTED, "the child has acted on the session"

            in_child(child)


# --- connecting and closing -----------------------------------------------------------------------


@asynchronous
async def test_failing_to_connect_says_why_and_leaves_nothing() -> None:
    port = refused_port()
    with within(1.0 + SLACK + CLOSE_BOUND), pytest.raises(NotSentError, match="refused"):
        async with AsyncClient(f"127.0.0.1:{port}", session_timeout=1.0):
            raise AssertionError("it is not connected")
    client = AsyncClient(f"127.0.0.1:{port}", session_timeout=1.0)
    with pytest.raises(NotSentError, match="refused"):
        await client.connect(0.5)
    with within(1.0 + SLACK), pytest.raises(NotSentError, match="refused"):
        await client.exists("/")
    await client.close()


@asynchronous
async def test_a_cancelled_connect_leaves_nothing() -> None:
    with FakeServer(silent) as server:

        async def use() -> None:
            async with AsyncClient(server.hosts):
                raise AssertionError("it is not connected")

        task = asyncio.ensure_future(use())
        await blocking(server.wait_for, lambda: server.connections)
        task.cancel()
        with within(CLOSE_BOUND), pytest.raises(asyncio.CancelledError):
            await task


@asynchronous
async def test_close_is_idempotent_and_may_be_called_by_many(hosts: str) -> None:
    client = AsyncClient(hosts)
    await client.connect()
    last = client.exists("/")
    with within(CLOSE_BOUND):
        assert await asyncio.gather(*(client.close() for _ in range(5))) == [None] * 5
        await client.close()
    assert await last is not None, "what was asked for before is still answered"
    assert state_of(client) is State.CLOSED
    told: list[State] = []
    never = AsyncClient(hosts)
    never.add_state_listener(told.append)
    await never.close()
    await never.close()
    assert state_of(never) is State.CLOSED
    await eventually("the listener is told", lambda: told == [State.CLOSED])


@asynchronous
async def test_close_tells_the_server(whole: str, fresh_path: str) -> None:
    async with AsyncClient(whole) as observer:
        client = AsyncClient(whole)
        await client.connect()
        await client.create(fresh_path, ephemeral=True)
        closing = [asyncio.ensure_future(client.close()) for _ in range(2)]
        await asyncio.gather(*closing)
        # A close waits for its answer, but not for long.
        await eventually("the session is over", lambda: _gone(observer, fresh_path))
        for how in ("waiting", "again"):
            client = AsyncClient(whole)
            await client.connect()
            await client.create(fresh_path, ephemeral=True)
            first = asyncio.ensure_future(client.close())
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            if how == "again":
                await client.close()
            assert state_of(client) is State.CLOSED
            gone = lambda: _gone(observer, fresh_path)  # noqa: E731
            await eventually("the request to close was sent", gone)


async def _gone(client: AsyncClient, path: str) -> bool:
    await client.sync(path)
    return await client.exists(path) is None


@pytest.mark.parametrize("kind", ["mute", "deaf", "silent", "nobody"])
@asynchronous
async def test_close_is_bounded_whatever_the_server_does(kind: str) -> None:
    scripts: dict[str, Callable[[Connection], None]] = {
        "mute": mute,
        "deaf": deaf,
        "silent": silent,
        "nobody": serve,
    }
    with FakeServer(scripts[kind]) as server:
        client = AsyncClient(server.hosts, session_timeout=20.0)
        if kind == "silent":
            client.exists("/")
            await blocking(server.wait_for, lambda: server.connections)
        else:
            await client.connect()
        if kind == "nobody":
            server.stop_listening()
            server.reset_all()
            await client.wait_for_state(State.DISCONNECTED, timeout=PATIENCE)
        waiting = asyncio.ensure_future(_await(client.create("/a", bytes(100_000))))
        await asyncio.sleep(0)
        others = [client.create(f"/{n}", bytes(900_000)) for n in range(20)]
        with within(CLOSE_BOUND):
            await client.close()
        if kind != "nobody":
            with pytest.raises(ClientClosedError):
                await waiting
            with pytest.raises(ClientClosedError):
                await others[-1]
        else:
            with pytest.raises(ClientClosedError):
                await waiting
        await blocking(server.close)


@asynchronous
async def test_close_while_connecting_and_calls_while_closing() -> None:
    with FakeServer(mute) as server:
        client = AsyncClient(server.hosts)
        connecting = asyncio.ensure_future(client.connect())
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ClientClosedError):
            await connecting
        client = AsyncClient(server.hosts)
        await client.connect()
        closing = asyncio.ensure_future(client.close())
        await asyncio.sleep(0)
        with pytest.raises(ClientClosedError, match="being closed"):
            client.exists("/")
        await closing


@asynchronous
async def test_detach_and_resume(whole: str, fresh_path: str) -> None:
    one = AsyncClient(whole)
    with pytest.raises(RuntimeError, match="no session yet"):
        await one.detach()
    await one.connect()
    await one.create(fresh_path, ephemeral=True)
    lock = AsyncSequentialLock(one, f"{fresh_path}-lock")
    assert await lock.acquire()
    with pytest.raises(RuntimeError, match="is held"):
        await one.detach()
    other = AsyncSequentialLock(one, f"{fresh_path}-lock")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await other.acquire()
    await lock.release()
    credentials = await one.detach()
    assert state_of(one) is State.CLOSED
    async with AsyncClient(whole, resume=credentials) as two:
        assert two.session_id == credentials.session_id
        assert await two.get_children(f"{fresh_path}-lock") == []
        await two.delete(f"{fresh_path}-lock")
        stat = await two.exists(fresh_path)
        assert stat is not None
        assert stat.ephemeral_owner == two.session_id
        blocking_again = await two.detach()

    def resume() -> int:
        with Client(whole, resume=blocking_again) as three:
            assert three.exists(fresh_path) is not None
            return three.session_id

    assert await blocking(resume) == credentials.session_id


# --- callbacks, listeners, traces -----------------------------------------------------------------


def without_zxid(event: Event) -> Event:
    """Servers tell it from 3.9 on."""
    return Event(event.type, event.path, event.state)


@asynchronous
async def test_callbacks_run_in_the_loop_and_may_be_coroutines(hosts: str, fresh_path: str) -> None:
    events: list[tuple[str, Event]] = []
    done = asyncio.Event()

    def plain(event: Event) -> None:
        assert asyncio.get_running_loop() is loop
        events.append(("plain", without_zxid(event)))

    async def coroutine(event: Event) -> None:
        if event.type is not EventType.NONE:
            assert await client.exists(fresh_path) is not None, "it may use the client"
        events.append(("coroutine", without_zxid(event)))
        done.set()

    loop = asyncio.get_running_loop()
    async with AsyncClient(hosts) as client:
        await client.exists(fresh_path, watch=plain)
        await client.exists(fresh_path, watch=coroutine)
        await client.create(fresh_path)
        await asyncio.wait_for(done.wait(), PATIENCE)
        created = Event(EventType.NODE_CREATED, fresh_path, State.CONNECTED)
        assert events == [("plain", created), ("coroutine", created)]
        events.clear()
        await client.get_children(fresh_path, watch=coroutine)
    await eventually("the end is told", lambda: events)
    assert [event.type for _, event in events] == [EventType.NONE]


@asynchronous
async def test_what_raises_is_reported_and_disturbs_nobody(hosts: str, fresh_path: str) -> None:
    seen: list[Any] = []

    def bad(thing: Any) -> None:
        raise KeyError(f"bad {type(thing).__name__}")

    async def bad_later(_: Any) -> None:
        await asyncio.sleep(0)
        raise KeyError("bad later")

    client = AsyncClient(hosts, trace=bad)
    client.add_state_listener(bad)
    client.add_state_listener(seen.append)
    async with client:
        await client.exists(fresh_path, watch=bad)
        await client.exists(fresh_path, watch=bad_later)
        await client.exists(fresh_path, watch=seen.append)
        await client.create(fresh_path)
        await eventually("the good callback is called", lambda: len(seen) > 3)
        await eventually("the coroutine's error is told", lambda: "later" in str(complaints()))
    assert State.CONNECTED in seen
    assert await eventually("all is told", lambda: seen[-1] is State.CLOSED)
    gc.collect()
    heard = "\n".join(complaints().take())
    for word in ("bad Event", "bad later", "bad State", "bad TraceFrame"):
        assert word in heard, heard


@asynchronous
async def test_listeners_and_wait_for_state() -> None:
    states: list[State] = []
    with Server() as server, FaultProxy(server.hosts) as proxy:
        client = AsyncClient(proxy.hosts)
        client.add_state_listener(states.append)
        waiting = asyncio.ensure_future(client.wait_for_state(State.DISCONNECTED))
        await client.connect()
        proxy.cut_all()
        assert await waiting is State.DISCONNECTED, "however short it was"
        assert await client.exists("/") is not None
        client.remove_state_listener(states.append)
        await client.close()
    assert states == [
        State.CONNECTING,
        State.HANDSHAKE,
        State.CONNECTED,
        State.DISCONNECTED,
        State.CONNECTING,
        State.HANDSHAKE,
        State.CONNECTED,
    ]


@asynchronous
async def test_trace_shows_each_frame_in_both_directions(hosts: str) -> None:
    frames: list[TraceFrame] = []
    async with AsyncClient(hosts, trace=frames.append) as client:
        await client.exists("/")
        await client.get_children("/")
    await eventually("all is told", lambda: len(frames) >= 6)
    ours = [frame for frame in frames if "exists" in str(frame)]
    assert len(ours) == 2
    assert [str(frame) for frame in frames].index(str(ours[0])) >= 1


# --- no thread, no complaint ----------------------------------------------------------------------


@asynchronous
async def test_no_thread_is_started(hosts: str) -> None:
    before = set(threading.enumerate())
    seen: list[Any] = []
    async with AsyncClient(hosts, trace=seen.append) as client:
        client.add_state_listener(seen.append)
        await client.exists("/", watch=seen.append)
        await asyncio.gather(*(client.exists("/") for _ in range(100)))
        lock = AsyncSequentialLock(client, "/lock")
        lock.lost.add_callback(seen.append)
        async with lock:
            await client.ensure_path("/a/b")
        started = {t for t in set(threading.enumerate()) - before if "fake" not in t.name}
        assert not {t.name for t in started if "zkwire-server" not in t.name}
        assert not library_threads()


@asynchronous
async def test_a_slow_look_up_of_a_name_does_not_block_the_loop() -> None:
    """It has the only thread that there ever is; one that never ends is left behind at close."""
    gate, calls = threading.Event(), itertools.count()

    def resolver(host: str, port: int) -> list[Any]:
        assert host == "some.where"
        next(calls)
        gate.wait(PATIENCE)
        return [(2, ("127.0.0.1", port))]

    with FakeServer() as server:
        hosts = f"some.where:{server.port}"
        client = AsyncClient(hosts, _resolver=resolver)
        reply = client.exists("/a")
        ticks = 0
        while not library_threads() or ticks < 50:
            await asyncio.sleep(0)
            ticks += 1
        assert library_threads() == {"zkwire-resolve"}
        assert not reply.ready
        gate.set()
        assert await reply is None
        await client.close()
        gate.clear()
        hurried = AsyncClient(hosts, _resolver=resolver)
        waiting = asyncio.ensure_future(hurried.connect())
        await asyncio.sleep(0.01)
        with within(CLOSE_BOUND):
            await hurried.close()
        with pytest.raises(ClientClosedError):
            await waiting
        gate.set()


def test_a_look_up_that_ends_after_the_loop_disturbs_nobody() -> None:
    gate = threading.Event()

    def resolver(host: str, port: int) -> list[Any]:
        gate.wait(PATIENCE)
        return []

    async def main() -> AsyncClient:
        client = AsyncClient("some.where:1", _resolver=resolver)
        client.exists("/a")
        await asyncio.sleep(0.01)
        return client  # not closed: that is the point

    client = asyncio.run(main())
    gate.set()
    for thread in threading.enumerate():
        if thread.name == "zkwire-resolve":
            thread.join(PATIENCE)
    asyncio.run(client.close())


def test_debug_mode_has_nothing_to_complain_about(
    whole: str, fresh_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No slow callback (see `run`), no exception that nobody fetched, nothing never awaited."""

    async def main() -> None:
        async with AsyncClient(whole) as client:
            await client.create(fresh_path)
            replies = [client.create(f"{fresh_path}/{n}") for n in range(1000)]
            await replies[-1]
            task = asyncio.ensure_future(_await(client.get_data("/none")))
            with suppress(NoNodeError):
                await task
            async with AsyncSequentialLock(client, f"{fresh_path}/lock"):
                pass
            await client.delete_tree(fresh_path)

    with caplog.at_level(logging.WARNING, logger="asyncio"):
        run(main, debug=True)
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@asynchronous
async def test_a_client_with_nothing_to_do_rests(hosts: str) -> None:
    async with AsyncClient(hosts, session_timeout=20) as client:
        await client.exists("/")
        await asyncio.sleep(0)
        with spinning() as count:
            await asyncio.sleep(0.2)
        assert count() < 10


# --- 10,000 idle seconds --------------------------------------------------------------------------


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop in which time passes only when nothing else happens; ``clock`` follows it.

    A wait for bytes gets a moment of real time first; while a client waits for an answer, as much
    as it takes.
    """

    def __init__(self, clock: VirtualClock, busy: Callable[[], bool]) -> None:
        super().__init__()
        self._clock, self._busy = clock, busy
        real = self._selector.select  # type: ignore[attr-defined]

        def select(timeout: float | None = None) -> Any:
            if timeout is not None and timeout <= 0:
                return real(0)
            while True:
                ready = real(0.002)
                if ready or not (self._busy() or timeout is None):
                    break
            if not ready and timeout is not None:
                self._clock.advance(timeout)
            return ready

        self._selector.select = select  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._clock()


def test_ten_thousand_idle_seconds(fresh_path: str) -> None:
    """Pings keep the session; nothing else is sent, nothing accumulates, nothing breaks."""
    clock = VirtualClock(1000.0)
    clients: list[AsyncClient] = []

    def busy() -> bool:
        return any(c._session._live._pings or c._session.unanswered for c in clients)

    async def main(hosts: str) -> None:
        traced: list[str] = []
        client = AsyncClient(
            hosts, session_timeout=30.0, _now=clock, trace=lambda f: traced.append(str(f))
        )
        clients.append(client)
        async with client:
            await client.create(fresh_path, ephemeral=True)
            lock = AsyncSequentialLock(client, "/lock")
            assert await lock.acquire()
            start, session_id = clock(), client.session_id
            before = len(traced)
            await asyncio.sleep(10_000)
            assert clock() - start >= 10_000
            pings = len(traced) - before
            assert 2 * 990 <= pings <= 2 * 1010, pings
            assert (client.session_id, state_of(client)) == (session_id, State.CONNECTED)
            assert lock.held
            assert client.lease_remaining() > 19.0
            assert await client.exists(fresh_path) is not None
            await lock.release()

    with Server(now=clock, tick=2.0) as server:
        run(
            lambda: main(server.hosts),
            loop_factory=lambda: VirtualLoop(clock, busy),
            seconds=20_000,
            debug=False,
        )


# --- TLS, SASL, read-only -------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.apache
@asynchronous
async def test_tls(tls_zookeeper: SecureServer, fresh_path: str) -> None:
    context = tls_zookeeper.client_context()
    async with AsyncClient(tls_zookeeper.hosts, tls=context) as client:
        data = bytes(900_000)
        await client.create(fresh_path, data)
        answers = await asyncio.gather(*(client.get_data(fresh_path) for _ in range(8)))
        assert all(answer.data == data for answer in answers)
        await asyncio.gather(*(client.create(f"{fresh_path}/{n}", bytes(500)) for n in range(500)))
        assert len(await client.get_children(fresh_path)) == 500
        async with AsyncSequentialLock(client, f"{fresh_path}/lock"):
            pass
        await client.delete_tree(fresh_path)
    plain = AsyncClient(tls_zookeeper.server.hosts, tls=context, session_timeout=2.5)
    with pytest.raises(NotSentError, match="TLS"):
        await plain.connect()
    await plain.close()


@pytest.mark.real
@pytest.mark.apache
@asynchronous
async def test_sasl(sasl_zookeeper: SecureServer, fresh_path: str) -> None:
    good = DigestMD5("bob", USERS["bob"])
    async with AsyncClient(sasl_zookeeper.hosts, sasl=good) as client:
        await client.create(fresh_path, acl=[zkwire.ACL(Perms.ALL, zkwire.Id("sasl", "bob"))])
        assert (await client.get_data(fresh_path)).data == b"", "it is bob, who alone may read it"
        await client.delete(fresh_path)
    bad = AsyncClient(sasl_zookeeper.hosts, sasl=DigestMD5("bob", "wrong horse"))
    with pytest.raises(AuthFailedError):
        await bad.connect()
    assert state_of(bad) is State.AUTH_FAILED
    await bad.close()


@asynchronous
async def test_sasl_of_the_embedded_server_and_auth() -> None:
    with Server(sasl_users={"bob": "secret"}, enforce_auth=["sasl"]) as server:
        async with AsyncClient(server.hosts, sasl=DigestMD5("bob", "secret")) as client:
            await client.create("/a")
    with Server() as server:
        async with AsyncClient(server.hosts, auth=[("digest", b"me:pw")]) as client:
            await client.create("/mine", acl=zkwire.CREATOR_ALL_ACL)
            assert "digest" in [info.auth_scheme for info in await client.who_am_i()]
        async with AsyncClient(server.hosts) as other:
            with pytest.raises(zkwire.NoAuthError):
                await other.get_data("/mine")
            await other.add_auth("digest", b"me:pw")
            assert (await other.get_data("/mine")).data == b""


@asynchronous
async def test_read_only_and_back() -> None:
    with Server(read_only=True) as server:
        states: list[State] = []
        client = AsyncClient(server.hosts, read_only=True, session_timeout=6.0)
        client.add_state_listener(states.append)
        async with client:
            assert client.state is State.CONNECTED_READ_ONLY
            assert await client.exists("/") is not None
            with pytest.raises(NotReadOnlyError):
                await client.create("/a")
            await blocking(server.set_read_only, False)
            await client.wait_for_state(State.CONNECTED, timeout=PATIENCE)
            assert await client.create("/a") == "/a"
    with Server(read_only=True) as server:
        refused = AsyncClient(server.hosts, session_timeout=0.5)
        with pytest.raises(NotSentError):
            await refused.connect()
        await refused.close()


@asynchronous
async def test_an_old_server_refuses_and_the_session_goes_on() -> None:
    with Server(version="3.5") as server:
        async with AsyncClient(server.hosts) as client:
            session_id = client.session_id
            with pytest.raises((UnimplementedError, ServerError)):
                await client.who_am_i()
            with suppress(zkwire.ConnectionLossError):
                await client.exists("/")
            assert await client.exists("/") is not None
            assert client.session_id == session_id


@asynchronous
async def test_follow_reconfig() -> None:
    with Server() as one, Server() as two:
        async with AsyncClient(one.hosts, follow_reconfig=True) as client:
            port = two.port
            text = f"server.1=h:1:2:participant;127.0.0.1:{port}\nversion=100".encode()
            await client.exists("/")
            await eventually("it watches", lambda: client._session.watch_count)
            await blocking(one.set_config, text)
            expected = [("127.0.0.1", port)]
            await eventually("it follows", lambda: client._session.hosts._hosts == expected)


@asynccontextmanager
async def connected(hosts: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(hosts) as client:
        yield client


@asynchronous
async def test_a_reply_has_no_asyncio_around_it() -> None:
    """`await` on an answered reply does not suspend; one on an open one suspends once."""
    with FakeServer() as server:
        async with connected(server.hosts) as client:
            reply = client.exists("/")
            await client.sync()
            with spinning() as count:
                await reply
            assert count() == 0


# --- interrupts -----------------------------------------------------------------------------------


@asynchronous
async def test_what_an_interrupted_read_has_taken_is_not_waited_for(
    hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may run its loop again; the call whose answer is gone must end."""
    async with AsyncClient(hosts) as client:
        pump = client._driver
        link = pump.current_connection
        assert link is not None
        reply = client.set_data("/", b"")
        receive = pump.session.receive_data

        def interrupted(data: bytes, now: float) -> None:
            monkeypatch.setattr(pump.session, "receive_data", receive)
            raise KeyboardInterrupt

        monkeypatch.setattr(pump.session, "receive_data", interrupted)

        def read() -> None:
            while link.closed_because is None:
                pump.read(link)

        with pytest.raises(KeyboardInterrupt):
            read()
        assert link.closed_because == INTERRUPTED
        with pytest.raises(OutcomeUnknownError):
            await reply
        assert await client.exists("/") is not None


@asynchronous
async def test_what_is_behind_an_interrupted_call_is_called_later(hosts: str) -> None:
    async with AsyncClient(hosts) as client:
        called: list[str] = []

        def interrupted() -> None:
            if not called:
                called.append("interrupted")
                raise KeyboardInterrupt

        client._session.callbacks += [interrupted, lambda: called.append("behind")]
        with pytest.raises(KeyboardInterrupt):
            client._driver.call_callbacks()
        client._driver.call_callbacks()
        assert called == ["interrupted", "behind"]


class Flicker(Waitable):
    """Wakes its waiters when it is not ready any more, and once more when it is."""

    __slots__ = ("moments",)

    def __init__(self) -> None:
        super().__init__()
        self.moments = 0

    @property
    def ready(self) -> bool:
        return self.moments >= 2

    def flicker(self) -> None:
        self.moments += 1
        for waker in self._take_wakers():
            waker()


@asynchronous
async def test_who_is_woken_for_nothing_goes_on_waiting(hosts: str) -> None:
    """A connection that lasted a moment is no time limit that has passed."""
    async with AsyncClient(hosts) as client:
        flicker = Flicker()
        waiter = asyncio.create_task(client._driver.within(flicker, PATIENCE))
        for _ in range(2):
            while not flicker._wakers:
                await asyncio.sleep(0)
            assert not waiter.done()
            flicker.flicker()
        assert await waiter
        assert not await client._driver.within(Flicker(), 0.01)


@asynchronous
async def test_a_lock_that_is_acquired_during_a_detach_is_not_left_behind(hosts: str) -> None:
    async with AsyncClient(hosts) as client:
        flicker = Flicker()

        async def work(_: object) -> None:
            while not flicker.ready:
                await Awaited(flicker)

        client._driver.spawn(work)
        leaving = asyncio.create_task(client.detach())
        async with AsyncSequentialLock(client, f"/detached-{uuid4().hex}"):
            flicker.moments = 2
            flicker.flicker()
            with pytest.raises(RuntimeError, match="a lock is held"):
                await leaving
        assert (await client.detach()).session_id


@asynchronous
async def test_a_broken_pipe_is_read_to_its_end_by_a_loop_that_does_not_tell(hosts: str) -> None:
    """uvloop listens no more to a socket that has had an error."""
    async with AsyncClient(hosts) as client:
        link, driver = client._driver.current_connection, client._driver.io
        assert link is not None
        assert driver is not None
        driver.connector.listen(0)
        shut_down(link.sock)
        link.send(b"0")
        assert link.broken_pipe
        driver.turn()
        assert client._driver.current_connection is not link
        assert await client.exists("/") is not None
