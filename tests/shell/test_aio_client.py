"""The asyncio client as its users see it: the same face, order, contexts, callbacks."""

from __future__ import annotations

import ast
import asyncio
import contextvars
import gc
import inspect
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.support.aio_helpers import awaited, complaints, eventually
from tests.support.fake_server import FakeServer, echo
from tests.support.lock_helpers import LONG, PATIENCE
from tests.support.operation_samples import OPERATIONS, SAMPLES
from zkwire import (
    AsyncCache,
    AsyncClient,
    AsyncSequentialLock,
    AsyncSupervisor,
    AsyncTransaction,
    Client,
    Event,
    EventType,
    NoNodeError,
    ReconfigDisabledError,
    State,
    TraceFrame,
    Transaction,
    Watch,
)
from zkwire.net.pipeline import Pipeline
from zkwire.operations import Operations
from zkwire.testing import FaultProxy, Server

# --- the same face --------------------------------------------------------------------------------

# What is spelt otherwise; an operation's own pipeline, which a reply makes idle.
ONLY_BLOCKING = {"pipeline"}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def shape(member: Any) -> list[tuple[str, Any, Any, Any]]:
    parameters = inspect.signature(member).parameters.values()
    return [(p.name, p.kind, p.default, p.annotation) for p in parameters if p.name != "self"]


@pytest.mark.parametrize(
    ("one", "other"),
    [(Client, AsyncClient), (Transaction, AsyncTransaction)],
    ids=lambda kind: kind.__name__,
)
def test_both_worlds_have_the_same_names_arguments_and_texts(one: type, other: type) -> None:
    """Those of the locks are compared in test_family."""
    assert public(one) - ONLY_BLOCKING == public(other)
    for name in public(other):
        ours, theirs = getattr(one, name), getattr(other, name)
        assert isinstance(ours, property) == isinstance(theirs, property), name
        assert ours.__doc__, name
        assert theirs.__doc__, name
        if isinstance(ours, property) or name in OPERATIONS:
            assert ours.__doc__ == theirs.__doc__, name
        if not isinstance(ours, property):
            assert shape(ours) == shape(theirs), name
    first = 1 if one is Transaction else 0
    assert shape(one)[first:] == shape(other)[first:]


def test_every_operation_of_the_client_is_one_of_the_async_client() -> None:
    assert public(Pipeline) == OPERATIONS
    for name in OPERATIONS:
        ours, theirs = getattr(AsyncClient, name), getattr(Operations, name)
        assert ours.__code__ is theirs.__code__, "not the one definition"
        assert not inspect.iscoroutinefunction(getattr(AsyncClient, name)), "it would start late"
    for name in ("connect", "close", "detach", "wait_for_state", "ensure_path", "delete_tree"):
        assert inspect.iscoroutinefunction(getattr(AsyncClient, name)), name


def fits(value: object, annotation: ast.expr) -> bool:
    """Whether a type checker is told the truth of this value."""
    match annotation:
        case ast.BinOp(left=left, right=right):
            return fits(value, left) or fits(value, right)
        case ast.Subscript(value=ast.Name(id="list"), slice=item):
            return type(value) is list and all(fits(each, item) for each in value)
        case ast.Constant(value=None):
            return value is None
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in ("Any", type(value).__name__)
    raise TypeError(ast.unparse(annotation))


def test_each_result_is_of_the_type_that_the_signature_tells(server: Server) -> None:
    with Client(server.hosts) as client:
        for number, sample in enumerate(SAMPLES):
            client.ensure_path(f"/{number}/gone")
            client.get_data(f"/{number}", watch=Watch())
            told = inspect.signature(getattr(Client, sample.method)).return_annotation
            with suppress(ReconfigDisabledError):
                result = sample.call(client, f"/{number}")
                assert fits(result, ast.parse(told, mode="eval").body), (sample.method, result)


def test_import_loads_no_asyncio_and_starts_nothing() -> None:
    code = (
        "import sys, threading, zkwire\n"
        "zkwire.Client('h'); zkwire.SequentialLock(zkwire.Client('h'), '/a'); zkwire.Watch()\n"
        "assert 'asyncio' not in sys.modules, 'asyncio is loaded'\n"
        "assert not [m for m in sys.modules if m.startswith('zkwire.aio')]\n"
        "zkwire.AsyncClient\n"
        "assert 'asyncio' in sys.modules\n"
        "assert threading.active_count() == 1\n"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    ran = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE)
    assert (ran.stdout, ran.stderr) == (b"", b"")


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
        with suppress(KeyError):
            async with client.transaction() as t:
                t.delete(f"{fresh_path}/once")
                raise KeyError
        assert await client.exists(f"{fresh_path}/once") is not None
        await client.delete_tree(fresh_path)
        assert await client.exists(fresh_path) is None
        async for _ in client.walk("/"):
            break
        with pytest.raises(NoNodeError):
            async for _ in client.walk(fresh_path):
                pass


# --- the order of the calls -----------------------------------------------------------------------


async def test_requests_leave_in_the_order_of_the_calls(hosts: str, fresh_path: str) -> None:
    """Whoever awaits what, and when, and whether at all."""
    with FaultProxy(hosts) as proxy:
        async with AsyncClient(proxy.hosts) as client:
            await client.create(fresh_path)
            proxy.reset()
            replies: dict[str, Any] = {}

            async def some(name: str) -> None:
                for number in range(20):
                    path = f"/{name}{number}"
                    replies[path] = client.exists(path)
                    if number % 3 == 0:
                        await replies[path]

            await asyncio.gather(some("a"), some("b"), some("c"))
            for path in reversed(replies):
                assert await replies[path] is None
            seen = [f.path for f in proxy.frames() if f.op == "exists" and f.direction == "c2s"]
            assert seen == list(replies)


async def test_collected_first_and_awaited_later_often_and_by_several(
    hosts: str, fresh_path: str
) -> None:
    async with AsyncClient(hosts) as client:
        first = client.exists(fresh_path)
        second = client.get_data(f"{fresh_path}/none")
        assert not first.ready
        assert await client.exists(f"{fresh_path}/b") is None
        assert first.ready, "replies come in order"
        both = await asyncio.gather(awaited(second), awaited(second), return_exceptions=True)
        assert [type(each) for each in both] == [NoNodeError] * 2
        assert both[0] is not both[1], "a traceback would grow"
        assert [await first, await first, first.result()] == [None, None, None]
        unfinished = client.exists(f"{fresh_path}/c")
        with pytest.raises(RuntimeError, match="not ended"):
            unfinished.result()
        assert await asyncio.gather(awaited(unfinished), awaited(unfinished)) == [None, None]


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


async def test_each_of_many_tasks_gets_its_own_answers() -> None:
    """This server echoes the path; the variables of a task stay its own."""
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    with FakeServer(echo) as server:
        async with AsyncClient(server.hosts) as client:
            asyncio.get_running_loop().set_debug(False)

            async def work(task: int) -> int:
                variable.set(task)
                for number in range(1000):
                    path = f"/{task}-{number}"
                    assert (await client.get_data(path)).data == path.encode()
                return variable.get()

            assert await asyncio.gather(*map(work, range(16))) == list(range(16))
        assert server.count("get_data") == 16_000


# --- callbacks, listeners, traces -----------------------------------------------------------------


class Request:
    """What a program keeps in a context while it serves a request of its own."""


async def test_callbacks_have_the_context_in_which_the_client_was_made(server: Server) -> None:
    """And nothing keeps that of the task which has connected the client."""
    variable: contextvars.ContextVar[object] = contextvars.ContextVar("variable")
    seen: dict[str, object] = {}

    def note(name: str) -> Callable[[object], None]:
        return lambda _: seen.update({name: variable.get()})

    async def later(_: object) -> None:
        await asyncio.sleep(0)
        note("a coroutine")(_)

    async def lead(_: object) -> None:
        note("a leader")(_)
        await asyncio.sleep(LONG)

    async def connect() -> weakref.ref[Request]:
        variable.set(request := Request())
        await client.create("/a")
        return weakref.ref(request)

    async def work() -> None:
        variable.set("worked")
        await client.exists("/a", watch=note("a watch"))
        await client.exists("/a", watch=later)
        cache = AsyncCache(client, "/a", skip=note("skip"), on_event=note("a cache"))
        assert await cache.wait_ready()
        supervisor.watch_data("/a", note("a supervisor"))
        supervisor.lead("/locks/m", lead)
        lock = AsyncSequentialLock(client, "/locks/l")
        await lock.acquire()
        lock.lost.add_callback(note("a loss"))

    variable.set("made")
    client = AsyncClient(server.hosts, trace=note("a trace"))
    client.add_state_listener(note("a listener"))
    supervisor = AsyncSupervisor(server.hosts)
    variable.set("used")
    request = await asyncio.create_task(connect())
    await eventually("the request is forgotten", lambda: gc.collect() < 0 or request() is None)
    await asyncio.create_task(work())
    await client.create("/a/b")
    await client.set_data("/a", b"")
    await eventually("the supervisor's are called", lambda: {"a supervisor", "a leader"} <= {*seen})
    variable.set("closed")
    await client.close()
    await eventually("all are called", lambda: len(seen) == 9)
    assert set(seen.values()) == {"made"}
    await supervisor.close()


async def test_callbacks_run_in_the_loop_and_may_be_coroutines(hosts: str, fresh_path: str) -> None:
    events: list[tuple[str, EventType, str]] = []
    frames: list[TraceFrame] = []

    def plain(event: Event) -> None:
        assert asyncio.get_running_loop() is loop
        events.append(("plain", EventType(event.type), event.path))

    async def coroutine(event: Event) -> None:
        if event.type is not EventType.NONE:
            assert await client.exists(fresh_path) is not None, "it may use the client"
        events.append(("coroutine", EventType(event.type), event.path))

    async def trace(frame: TraceFrame) -> None:
        frames.append(frame)

    loop = asyncio.get_running_loop()
    async with AsyncClient(hosts, trace=trace) as client:
        await client.exists(fresh_path, watch=plain)
        await client.exists(fresh_path, watch=coroutine)
        await client.create(fresh_path)
        await eventually("both have run", lambda: len(events) == 2)
        created = (EventType.NODE_CREATED, fresh_path)
        assert events == [("plain", *created), ("coroutine", *created)]
        events.clear()
        await client.get_children(fresh_path, watch=coroutine)
        await eventually("it is traced", lambda: any(frame.op == "exists" for frame in frames))
    await eventually("the end is told", lambda: events)
    assert events == [("coroutine", EventType.NONE, "")]


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
        for watch in (bad, bad_later, seen.append):
            await client.exists(fresh_path, watch=watch)
        await client.create(fresh_path)
        await eventually("the good callback is called", lambda: len(seen) > 3)
        await eventually("the coroutine's error is told", lambda: "later" in str(complaints()))
    assert State.CONNECTED in seen
    assert await eventually("all is told", lambda: seen[-1] is State.CLOSED)
    gc.collect()
    heard = "\n".join(complaints().take())
    for word in ("bad Event", "bad later", "bad State", "bad TraceFrame"):
        assert word in heard, heard


async def test_listeners_and_wait_for_state(server: Server) -> None:
    states: list[State] = []
    with FaultProxy(server.hosts) as proxy:
        client = AsyncClient(proxy.hosts)
        client.add_state_listener(states.append)
        waiting = asyncio.ensure_future(client.wait_for_state(State.DISCONNECTED))
        await client.connect()
        proxy.cut_all()
        assert await waiting is State.DISCONNECTED, "however short it was"
        assert await client.exists("/") is not None
        client.remove_state_listener(states.append)
        await client.close()
    connected = [State.CONNECTING, State.HANDSHAKE, State.CONNECTED]
    assert states == [*connected, State.DISCONNECTED, *connected]
