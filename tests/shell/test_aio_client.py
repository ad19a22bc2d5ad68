"""The asyncio client as its users see it: operations, order, limits, misuse, the end."""

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
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import zkwire
from tests.support.aio_helpers import awaited, complaints, eventually, run
from tests.support.fake_server import FakeServer, echo
from tests.support.lock_helpers import LONG, PATIENCE
from tests.support.operation_samples import OPERATIONS, SAMPLES
from zkwire import (
    AsyncCache,
    AsyncClient,
    AsyncSequentialLock,
    AsyncSupervisor,
    AsyncTransaction,
    Check,
    Client,
    Create,
    Event,
    EventType,
    GetData,
    NoNodeError,
    ReconfigDisabledError,
    SetData,
    State,
    TraceFrame,
    Transaction,
    Watch,
    ZooKeeperError,
)
from zkwire.net.pipeline import Pipeline
from zkwire.operations import Operations
from zkwire.testing import FaultProxy, Server

# What takes longer does not end by itself.
SLACK = 2.0


# --- the same face --------------------------------------------------------------------------------


FACES: list[tuple[type, type]] = [(Client, AsyncClient), (Transaction, AsyncTransaction)]
"""Those of the locks are compared in test_family."""
# Enter and exit, which are spelt otherwise; an operation's own pipeline, which a reply makes idle.
ONLY_BLOCKING = {"pipeline"}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def shape(member: Any) -> list[tuple[str, Any, Any, Any]]:
    parameters = inspect.signature(member).parameters.values()
    return [(p.name, p.kind, p.default, p.annotation) for p in parameters if p.name != "self"]


@pytest.mark.parametrize(("one", "other"), FACES, ids=lambda kind: kind.__name__)
def test_both_worlds_have_the_same_names_arguments_and_texts(one: type, other: type) -> None:
    assert public(one) - ONLY_BLOCKING == public(other)
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
    for number, sample in enumerate(SAMPLES):
        yield ask("ensure_path", f"{root}/{number}/gone")
        yield sample.call(Recorder(), f"{root}/{number}")


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


class Recorder:
    """What is called of it is returned: the name of the operation and its arguments."""

    def __getattr__(self, verb: str) -> Callable[..., tuple[str, Any, Any]]:
        return lambda *args, **kwargs: (verb, args, kwargs)


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


# --- the order of the calls -----------------------------------------------------------------------


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


async def test_collected_first_and_awaited_later_often_and_by_several(
    hosts: str, fresh_path: str
) -> None:
    async with AsyncClient(hosts) as client:
        first = client.exists(fresh_path)
        second = client.get_data(f"{fresh_path}/none")
        assert not first.ready
        assert await client.exists(f"{fresh_path}/b") is None
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
        unfinished = client.exists(f"{fresh_path}/c")
        with pytest.raises(RuntimeError, match="not ended"):
            unfinished.result()
        two = [asyncio.ensure_future(awaited(unfinished)) for _ in range(2)]
        assert await asyncio.gather(*two) == [None, None]


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


async def test_context_variables_are_the_callers(hosts: str) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")

    async def one(number: int) -> int:
        variable.set(number)
        await client.exists("/")
        return variable.get()

    async with AsyncClient(hosts) as client:
        assert await asyncio.gather(*map(one, range(5))) == list(range(5))


# --- callbacks, listeners, traces -----------------------------------------------------------------


class Request:
    """What a program keeps in a context while it serves a request of its own."""


async def test_callbacks_have_the_context_in_which_the_client_was_made(server: Server) -> None:
    """And nothing keeps that of the task which has connected the client."""
    variable: contextvars.ContextVar[object] = contextvars.ContextVar("variable")
    seen: set[tuple[str, object]] = set()

    def note(name: str) -> Callable[[object], None]:
        return lambda _: seen.add((name, variable.get()))

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

    def names() -> set[str]:
        return {name for name, _ in seen}

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
    await eventually("the supervisor's are called", lambda: {"a supervisor", "a leader"} <= names())
    variable.set("closed")
    await client.close()
    await eventually("all are called", lambda: len(names()) == 9)
    assert seen == {(name, "made") for name in names()}
    await supervisor.close()


async def test_a_trace_may_be_a_coroutine_function(server: Server) -> None:
    frames: list[TraceFrame] = []

    async def trace(frame: TraceFrame) -> None:
        frames.append(frame)

    async with AsyncClient(server.hosts, trace=trace) as client:
        await client.exists("/")
        await eventually("it has run", lambda: any(frame.op == "exists" for frame in frames))


def without_zxid(event: Event) -> Event:
    """Servers tell it from 3.9 on."""
    return Event(event.type, event.path, event.state)


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
