"""An ordeal for recipes: a server refuses each of their requests once, in every way it may.

What a test says is a *life*: what is called, and what must be true after each call.  It is lived
once without a fault, to count its requests, and then once for each request and each error code with
which a server may refuse that::

    async def life(stage):
        counter = Counter(stage.client, stage.path)
        assert await stage.call(counter.add, 2) == 2
        assert await stage.call(counter.get) == 2

    def test_refusals():
        sweep_refusals(life)

In each run the recipe is right again by itself, or a call raises the refusal: the class and the
code that the server has sent.  Such a call has left nothing, and succeeds when it is repeated.  At
the end of a life nothing stays that does not stay without a fault: no node, no watch, no thread, no
task.  What hangs, what is lost, and an error that no caller gets fails the sweep, by an
AssertionError that names the requests and the codes.

This module decides which refusals are tried and what must be true after them.  What a recipe is for
is known to the life alone.

A code is plausible for a request if a correct server can answer with it, whatever the client has
seen before.  Codes that tell a client about the nodes are not tried, since they would be lies:
NoNode for a read or a delete, BadVersion, NodeExists for a sequential create.  (A simulation
changes the nodes, so that such an answer is true.)  NodeExists and NoNode for any other create are
tried, because the node may have come or gone again before the client looks.

The proxy replaces the request by a read that changes nothing, and rewrites the answer to that.  So
answers have the order and the zxids that the server gave them, and any server can be made to
refuse.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

from zkwire import AsyncClient, AsyncSupervisor, Client, errors
from zkwire.errors import MultiError, ServerError, error_for
from zkwire.jute import records as r
from zkwire.jute.frames import frame as framed
from zkwire.jute.records import ConnectResponse
from zkwire.testing.proxy.faults import Action, Send, Step
from zkwire.testing.proxy.frames import OPCODES, Frame
from zkwire.testing.proxy.proxy import FaultProxy
from zkwire.testing.server.operations import refused_parts
from zkwire.testing.server.server import Server
from zkwire.testing.server.tree import CONTAINER
from zkwire.wire.ops import OPS

UNKNOWN: Final = -9999
"""A code that no client knows."""

_ANY = (errors.NoAuthError.code, UNKNOWN)
_CREATE = (
    *_ANY,
    errors.QuotaExceededError.code,
    errors.NoNodeError.code,
    errors.NodeExistsError.code,
    errors.NoChildrenForEphemeralsError.code,
)
PLAUSIBLE: Final[dict[str, tuple[int, ...]]] = {
    **dict.fromkeys(("create", "create2", "create_container", "create_ttl"), _CREATE),
    "delete": (*_ANY, errors.NotEmptyError.code),
    "set_data": (*_ANY, errors.QuotaExceededError.code),
    "sync": (UNKNOWN,),
    **dict.fromkeys(("remove_watches", "close_session", "set_watches", "set_watches2"), ()),
}
"""The codes for each operation; for all others NoAuth and the one that no client knows.

``set_watches``, ``remove_watches`` and ``close_session`` are the client's own, and no recipe's.
"""

_HEADER, _REPLY_HEADER = 12, 20  # bytes: the length, and what stands before the body
_ROOT: Final = r.ExistsRequest("/", False)
_SEQUENTIAL = {2, 3, 6}  # CreateMode.java
_ID = re.compile(r"[0-9a-f]{16}(?:-?[0-9a-f]{8,})*|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile(r"\d{10}")


class Part(NamedTuple):
    """One operation of a request: its name and path, and what a server may refuse it with."""

    name: str
    codes: tuple[int, ...]


class Refusal(NamedTuple):
    """The ``nth`` request of this name, from 0, is refused with this code; of a multi the ``part``.

    ``request`` is the operation and the path, without ids: a life that is lived again sends its
    requests in another order, to other nodes.
    """

    request: str
    nth: int
    code: int
    part: int = 0

    def describe(self) -> str:
        """The refusal in words."""
        error = type(error_for(self.code, "", None)).__name__
        return f"{self.request} (number {self.nth}) refused with {self.code} ({error})"


def parts(frame: Frame, base: str) -> list[Part]:
    """The operation of a request; of a multi all.  Paths are relative to ``base``."""
    opcode = frame.opcode or 0
    if PLAUSIBLE.get(frame.op) is _CREATE:
        return [_part(opcode, frame.raw, _HEADER, base)[0]]
    if frame.op != "multi":
        name = f"{frame.op} {masked(frame.path or '', base)}"
        return [Part(name, PLAUSIBLE.get(frame.op, _ANY))]
    found: list[Part] = []
    header, at = r.MultiHeader.unpack(frame.raw, _HEADER)
    while not header.done:
        (name, codes), at = _part(header.type, frame.raw, at, base)
        found.append(Part(f"multi: {name}", codes))
        header, at = r.MultiHeader.unpack(frame.raw, at)
    return found


def _part(opcode: int, data: bytes, at: int, base: str) -> tuple[Part, int]:
    """The operation whose request is at ``data[at]``, and the offset after it."""
    op = OPS[opcode]
    kind: Any = op.request
    request, at = kind.unpack(data, at)
    codes = PLAUSIBLE.get(op.name, _ANY)
    if getattr(request, "flags", 0) in _SEQUENTIAL:
        codes = tuple(code for code in codes if code != errors.NodeExistsError.code)
    return Part(f"{op.name} {masked(request.path, base)}", codes), at


def refusals(requests: Iterable[Frame], base: str) -> list[Refusal]:
    """Every plausible refusal of each of these requests; of parts alike the first and the last."""
    found: list[Refusal] = []
    seen: Counter[str] = Counter()
    for frame in requests:
        all_parts = parts(frame, base)
        for name in dict.fromkeys(part.name for part in all_parts):
            alike = [index for index, other in enumerate(all_parts) if other.name == name]
            found += [
                Refusal(name, seen[name], code, index)
                for index in sorted({alike[0], alike[-1]})
                for code in all_parts[index].codes
            ]
            seen[name] += 1
    return found


def refuse(refusal: Refusal) -> Action:
    """The action that refuses the request."""

    def act(frame: Frame) -> Iterable[Step]:
        body = r.RequestHeader(frame.xid or 0, OPCODES["exists"]).encode() + _ROOT.encode()
        count = len(parts(frame, "")) if frame.op == "multi" else 0

        def rewritten(reply: Frame) -> Iterable[Step]:
            return (Send(_refused(reply.raw, refusal, count)),)

        return (Send(framed(body), reply=rewritten),)

    return act


def _refused(reply: bytes, refusal: Refusal, count: int) -> bytes:
    """The answer: for a multi of ``count`` parts a code for each, as servers do."""
    head = reply[4 : _REPLY_HEADER - 4]
    if not count:
        return framed(head + refusal.code.to_bytes(4, "big", signed=True))
    return framed(head + bytes(4) + refused_parts(refusal.part, refusal.code, count))


def masked(path: str, base: str) -> str:
    """The path relative to ``base``, without ids and numbers that are others each time."""
    if path.startswith(base):
        path = "PATH" + path[len(base) :]
    return _NUMBER.sub("<n>", _ID.sub("<id>", path))


LIMIT = 15.0
"""Seconds that one wait of a life may take, if it is not said otherwise."""
AT_ONCE = 8
_STEP = 0.001
_NOTHING = "/kit"  # where nothing ever is

Life: TypeAlias = "Callable[[Stage], Coroutine[Any, Any, None]]"


class Refused(NamedTuple):
    """What a recipe has done when a request was refused.

    ``request`` is the operation and the path, relative to the stage's, ids left out; ``outcome`` is
    one of `RAISED`, `REPEATED` and `IGNORED`, or what the life has noted.
    """

    request: str
    code: int
    outcome: str


RAISED = "raised to the caller"
REPEATED = "tried again"
IGNORED = "goes on without it"


class Stage:
    """What one life is given: a client, a path below which only this life works, and a server.

    ``client`` is the client or the supervisor whose request is refused.  ``other`` is a `Client`
    that talks to the server directly.  ``asynchronous`` says whether ``client`` is one of asyncio,
    so that one life can serve both kinds.
    """

    def __init__(
        self, server: Server, other: Client, path: str, kind: type[Any], patience: float = LIMIT
    ) -> None:
        self.other: Client = other
        self.path: str = path
        self.asynchronous: bool = kind in (AsyncClient, AsyncSupervisor)
        self.client: Any = None
        self.refused: Frame | None = None
        self.raised: ServerError | None = None
        self.outcome: Refused | None = None
        self._noted = ""
        self._patience = patience
        self._server = server
        self._kind = kind
        self._proxy: FaultProxy
        self._refusal: Refusal | None = None

    # --- for a life ---

    async def call(
        self, function: Callable[..., Any], *arguments: Any, again: bool = True, **named: Any
    ) -> Any:
        """The result of a call, which is awaited if need be.

        If it raises the refusal, nothing may be left of it, and it is called once more; with
        ``again=False`` it is not, and the result is None.
        """
        before = set(self.ephemerals)
        try:
            return await _called(function, *arguments, **named)
        except ServerError as error:
            self._note_refusal(error)
        await self.until(lambda: before.issuperset(self.ephemerals), "what it made is gone")
        return await _called(function, *arguments, **named) if again else None

    async def ask(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """As :meth:`call`, for a service: it goes on after a refusal, so what it makes may stay."""
        try:
            return await _called(function, *arguments, **named)
        except ServerError as error:
            self._note_refusal(error)
        return await _called(function, *arguments, **named)

    async def within(
        self, make: Callable[[], Any], body: Callable[[Any], object], *, again: bool = True
    ) -> None:
        """As :meth:`call`, for ``with make() as it: body(it)``; ``async with`` under asyncio."""

        async def scope() -> None:
            if self.asynchronous:
                async with make() as it:
                    body(it)
            else:
                with make() as it:
                    body(it)

        await self.call(scope, again=again)

    def start(self, steps: Coroutine[Any, Any, Any]) -> _Started:
        """Begin a :meth:`call`, or several, in a thread or a task of its own."""
        if self.asynchronous:
            return _Started(asyncio.ensure_future(steps))
        return _Started(_in_thread(lambda: _driven(steps), "kit-call"))

    def note(self, outcome: str) -> None:
        """Say what the recipe has done at the refusal, if no call has raised it."""
        assert self.refused is not None, f"{outcome} without a refusal"
        self._noted = outcome

    @property
    def code(self) -> int:
        """The code of the refusal; 0 if there has been none so far."""
        return 0 if self.refused is None or self._refusal is None else self._refusal.code

    async def until(self, holds: Callable[[], object], what: str = "") -> Any:
        """What ``holds`` returns, as soon as that is true."""
        latest = time.monotonic() + self._patience
        while not (seen := holds()):
            if time.monotonic() > latest:
                raise TimeoutError(
                    f"not within {self._patience} s: {what or inspect.getsource(holds)}"
                )
            await asyncio.sleep(_STEP) if self.asynchronous else time.sleep(_STEP)
        return seen

    def expire(self) -> None:
        """End the session that was opened last, as the server does after a long silence."""
        self._server.expire(self._sessions()[-1])

    @property
    def watches(self) -> list[str]:
        """The paths that this life's sessions watch, as the server has them."""
        sessions, watches = self._sessions(), self._server.watches
        return self._server.inspect(lambda: [path for s in sessions for path in watches(s)])

    @property
    def requests(self) -> list[Frame]:
        """The requests so far, without pings and handshakes."""
        frames = [f for f in self._proxy.frames() if f.number is not None]
        return [f for f in frames if f.op != "close_session" and f.path != _NOTHING]

    @property
    def ephemerals(self) -> list[str]:
        """The ephemeral nodes of this life's sessions, as the server has them."""
        tree, sessions = self._server.tree, self._sessions()
        return sorted(
            self._server.inspect(lambda: [p for s in sessions for p in tree.ephemerals(s)])
        )

    @property
    def sessions(self) -> int:
        """How many sessions this life has had."""
        return len(self._sessions())

    # --- for the runner ---

    def _live(self, life: Life, proxy: FaultProxy, refusal: Refusal | None) -> None:
        """Live in this thread; raises what is wrong."""
        self._proxy, self._refusal = proxy, refusal
        self._to_come = 0 if refusal is None else refusal.nth
        if refusal is not None:
            proxy.rule(self._rule)
        if self.asynchronous:
            asyncio.run(self._live_in_loop(life))
        else:
            with self._kind(proxy.hosts) as self.client:
                _driven(life(self))
                _driven(self._settle())
        self._note_outcome()

    async def _live_in_loop(self, life: Life) -> None:
        complaints: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(str(context)))
        async with self._kind(self._proxy.hosts) as self.client:
            await life(self)
            await self._settle()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        assert not tasks, f"tasks are left: {tasks}"
        assert not complaints, f"an error that no caller has got: {complaints}"

    async def _settle(self) -> None:
        if self._clean is not None:
            clean = self._clean
            with suppress(TimeoutError):
                await self.until(lambda: not self._left() - clean, "settled")
            beyond = self._left() - clean
            assert not beyond, f"left behind: {[*beyond]}"
        else:
            await self._quiet()
            self._clean = self._left()

    async def _quiet(self) -> None:
        """Wait until nothing more is sent or cleaned up."""
        client, seen = await self._newest(), -1
        while seen != (seen := len(self.requests)):
            # What had come before the answer is known to the client then, and followed by what it
            # asks for or has to do.
            await _called(client.sync, _NOTHING)
            await self.until(lambda: self._is_idle(client), "nothing is asked or cleaned up")

    async def _newest(self) -> Any:
        """The client of the newest session."""
        if isinstance(self.client, (Client, AsyncClient)):
            return self.client
        return await _called(self.client.client, self._patience)

    def _is_idle(self, client: Any) -> bool:
        """Whether it has nothing to do, and each request on its connection is answered."""
        driver, frames = client._driver, self._proxy.frames()
        if driver.deferred.waiting or driver.background_tasks or driver.pending_cleanups:
            return False
        newest = max(frame.connection for frame in frames)
        asked = {f.number for f in frames if f.connection == newest} - {None}
        return asked <= {f.request.number for f in frames if f.request is not None}

    _clean: Counter[str] | None = None

    def _rule(self, frame: Frame) -> Action | None:
        refusal = self._refusal
        if self.refused is not None or refusal is None or frame.number is None:
            return None
        called = [part.name for part in parts(frame, self.path)]
        if refusal.request not in called:
            return None
        self._to_come -= 1
        if self._to_come >= 0 or called[refusal.part : refusal.part + 1] != [refusal.request]:
            return None
        self.refused = frame
        return refuse(refusal)

    def _note_refusal(self, error: ServerError) -> None:
        """Raise the error unless it is the refusal, as a server has sent it."""
        is_sent = type(error) is type(error_for(self.code, "", None)) and error.code == self.code
        if self.refused is None or isinstance(error, MultiError) or not is_sent:
            raise error
        self.raised = error

    def _sessions(self) -> list[int]:
        """Its sessions, each once: a session is greeted again on each connection that it moves to.

        The greeting of a session that has expired names the session 0.
        """
        frames = self._proxy.frames()
        greetings = [f for f in frames if f.kind == "connect" and f.direction == "s2c"]
        ids = dict.fromkeys(ConnectResponse.decode(f.body).session_id for f in greetings)
        return [session_id for session_id in ids if session_id]

    def _left(self) -> Counter[str]:
        sessions = self._sessions()

        def look() -> Counter[str]:
            tree, below = self._server.tree, self.path + "/"
            nodes = [
                path
                for path, node in tree.nodes.items()
                if path.startswith(self.path)
                and (path == self.path or path.startswith((below, self.path + "-")))
                and (node.owner != CONTAINER or node.children)
            ]
            watches = [path for s in sessions for path in self._server.watches(s)]
            named = {"node": nodes, "watch of": watches}
            return Counter(
                f"{a} {masked(p, self.path)}" for a, paths in named.items() for p in paths
            )

        return self._server.inspect(look)

    def _note_outcome(self) -> None:
        """Say what has become of the refusal; nothing if its request has not come."""
        frame, refusal = self.refused, self._refusal
        if frame is None or refusal is None:
            return
        later = self.requests[self.requests.index(frame) + 1 :]
        again = any(part.name == refusal.request for f in later for part in parts(f, self.path))
        outcome = self._noted or (RAISED if self.raised else REPEATED if again else IGNORED)
        self.outcome = Refused(refusal.request, refusal.code, outcome)


class _Started:
    """A call in a thread or a task of its own."""

    def __init__(self, outcome: asyncio.Task[Any] | Future[Any]) -> None:
        self._outcome = outcome

    async def result(self) -> Any:
        """What the call returns, or raises."""
        if isinstance(self._outcome, Future):
            return self._outcome.result(LIMIT)
        return await self._outcome


def _in_thread(function: Callable[[], Any], name: str) -> Future[Any]:
    """Call a function in a thread that the process does not wait for; its outcome."""
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return outcome


async def _called(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    value = function(*arguments, **named)
    return await value if inspect.isawaitable(value) else value


def _driven(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never waits, because each call of it blocks."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("this life awaits something else than its stage")


def sweep_refusals(
    life: Life,
    kind: type[Any] = Client,
    *,
    patience: float = LIMIT,
    limit: float = 4 * LIMIT,
    chosen: Callable[[list[Refusal]], list[Refusal]] = lambda every: every,
) -> list[Refused]:
    """Live with every refusal of every request; what the recipe has done at each.

    ``kind`` is `Client`, `AsyncClient`, `Supervisor` or `AsyncSupervisor`: what `Stage.client` is.
    ``patience``: seconds for each wait, such as for what a refused call has made to be gone;
    ``limit``: for each life, so that what hangs is named.  ``chosen`` picks the refusals to be
    tried, for instance a tenth of them.  Raises AssertionError for all runs in which something was
    wrong.
    """
    threads, numbers = set(threading.enumerate()), count()
    with Server() as server, Client(server.hosts) as other:

        def live(
            refusal: Refusal | None, clean: Counter[str] | None = None
        ) -> tuple[Stage, BaseException | None]:
            """Live once, in a thread of its own, and what is wrong."""
            stage = Stage(server, other, f"/kit{next(numbers)}", kind, patience)
            stage._clean = clean
            with FaultProxy(server.hosts) as proxy:
                outcome = _in_thread(lambda: stage._live(life, proxy, refusal), "kit-life")
                try:
                    return stage, outcome.exception(limit)
                except TimeoutError:
                    return stage, TimeoutError(f"hangs: it has not ended within {limit} s")

        plain, error = live(None)
        if error is not None:
            raise error
        todo = chosen(refusals(plain.requests, plain.path))
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="kit") as pool:
            ended = list(pool.map(partial(live, clean=plain._clean), todo))
    wrong = [
        f"{refusal.describe()}: {type(error).__name__}: {error}"
        for refusal, (_, error) in zip(todo, ended, strict=True)
        if error is not None
    ]
    assert not wrong, f"{len(wrong)} of {len(todo)} refusals:\n" + "\n".join(wrong)
    left = set(threading.enumerate()) - threads
    for thread in left:
        thread.join(1.0)
    left = {thread for thread in left if thread.is_alive()}
    assert not left, f"threads are left: {left}"
    return [stage.outcome for stage, _ in ended if stage.outcome is not None]
