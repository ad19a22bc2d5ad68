"""How a thread waits: for a reply, for a coroutine, and in the classes made of recipes.

A coroutine runs in the caller's thread.  What is stated of a method made of it (its signature, its
docstring, its annotations) is that of the one definition, with the type that the thread gets.

A generated class holds the object that does the work, ``_algorithm``, and runs its coroutines.  How
a ``with`` survives an interrupt is written here, once for all.
"""

from __future__ import annotations

import warnings
from functools import partial, wraps
from weakref import ref

from zkwire.net.client import check_callable
from zkwire.net.pipeline import Pipeline, ReplyToCome, Submitter, timed_out
from zkwire.operations import Operations
from zkwire.recipes._recipe import LockInUseError, check_kind, public, renamed
from zkwire.session.request import ANSWERED, Request
from zkwire.session.waitable import Bound, check_timeout

# No bool(): with `Self` unknown, an editor takes the type of a `with` from what is returned.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Callable,
        Coroutine,
        Generator,
        Iterator,
    )
    from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

    from zkwire.operations import Reply
    from zkwire.operations.nodes import Requests

    P = ParamSpec("P")
    T = TypeVar("T")

    class ClientLike(Protocol):
        """A Client or a Supervisor."""

        @property
        def _core(self) -> Any:
            """What the recipes ask of it."""
            ...


# An interrupt can come between the call that makes a coroutine and its first step, and then Python
# says that it was never awaited.  The interrupt itself tells enough.  This hides no await that a
# program has forgotten: there Python names a module of the program's.
warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning, r"zkwire\.")


SUSPENDED = "a recipe suspended under the blocking client"


def check_callback(callback: Any) -> None:
    """TypeError for a function that would have to be awaited: threads do not do that."""
    from inspect import iscoroutinefunction  # not at the top: an import of zkwire is to be quick

    if callable(callback) and any(map(iscoroutinefunction, (callback, type(callback).__call__))):
        raise TypeError(f"{callback!r} is async: a thread calls it, and nothing awaits it")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result.  Every await in it must block in place."""
    return complete(lambda: coroutine)


def complete(make: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of the coroutine that ``make`` returns, run as :func:`run` does.

    No call stands between its making and its first step, so that no interrupt, and no full stack,
    leaves it behind in a traceback.
    """
    coroutine = make(*args, **kwargs)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError(SUSPENDED)


def iterate(items: AsyncGenerator[T, None]) -> Iterator[T]:
    """The items of an asynchronous generator, one after the other."""
    try:
        while True:
            try:
                item = run(items.asend(None))
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())


def in_thread(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """The coroutine method of a client, run in the caller's thread."""
    # Python's message about arguments is to name the class that the caller knows.
    function: Any = method
    coroutine: Any = renamed(function, f"Client.{function.__name__}")

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return complete(coroutine, self, *args, **kwargs)

    return call


def operation(
    method: Callable[Concatenate[Any, P], Reply[T]],
) -> Callable[Concatenate[Any, P], T]:
    """The operation itself, as a method that returns the result: for BlockingOperations.

    No function stands around it, which would be a tenth of what the client adds to a lone request.
    """
    return _restated(method, "Reply[")


def iterator(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """The method itself, as one that returns an iterator: where ``_iterate`` makes it one."""
    return _restated(method, "Async")


def _restated(method: Any, without: str) -> Any:
    """The same code, with the stated return type ``without`` its beginning."""
    copy = renamed(method, method.__qualname__)
    stated: str = method.__annotations__["return"].removeprefix(without)
    if without.endswith("["):
        stated = stated.removesuffix("]")
    copy.__annotations__ = {**method.__annotations__, "return": stated}
    return copy


class BlockingReply(Request):
    """The answer to come of one operation; see :meth:`result`."""

    __slots__ = ("driver",)
    driver: Any  # a LeaderFollower

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the answer, at most ``timeout`` seconds, and return the operation's result.

        Raises what the operation ended with, or OperationTimeoutError: then, and when this is
        interrupted, a request that had not been sent never is (``maybe_applied`` is False); one
        that had been is still executed.
        """
        if timeout is not None:
            check_timeout("timeout", timeout)
        if self.outcome is None:
            try:
                answered = self.driver.wait(self, timeout, lead=True)
            except BaseException:
                self.driver.withdraw(self)  # as a cancelled await does
                raise
            if not answered:
                taken_back = self.driver.withdraw(self)
                if taken_back or not self.ready:
                    raise timed_out(self, timeout, taken_back)
        return self.value()

    def __await__(self) -> Generator[Any, None, Any]:
        """Blocks in place: a recipe runs in its caller's thread."""
        return self.result()
        yield


class PipelinedReply(ReplyToCome):
    """The answer to come of one operation of a pipeline."""

    __slots__ = ()
    _request: BlockingReply
    _first = "call its result() first"

    def result(self, timeout: float | None = None) -> Any:
        request = self._request
        if timeout is None and request.outcome is ANSWERED:  # as most of a long pipeline are
            finish = request.finish
            return request.record if finish is None else finish(request.record)
        return request.result(timeout)

    result.__doc__ = BlockingReply.result.__doc__

    def add_done_callback(self, function: Callable[[PipelinedReply], object]) -> None:
        """Call ``function`` with this reply once the operation has ended, in the callback thread.

        That thread calls these, watch callbacks and state listeners in the order in which the
        answers and events have come, one after the other.  It may block, and use the client.  What
        it raises is reported as an unhandled exception of a thread.  With a client that is closed
        already, and has no such thread any more, the calling thread calls it.
        """
        check_callable("function", function)
        driver = self._request.driver
        driver.check()
        driver.check_callback(function)
        call = partial(function, self)
        driver.when_ready(self._request, partial(driver.dispatch_surely, call))

    def __await__(self) -> Generator[Any, None, Any]:
        return self._request.__await__()


class ReplyPipeline(Pipeline):
    """The operations of a blocking client, each returning its reply at once.

        replies = [client.pipeline.get_data(path) for path in paths]
        values = [reply.result() for reply in replies]

    Requests leave in the order of the calls, many in one write.  The error of a reply that is never
    asked for its result goes unnoticed, as that of a ``concurrent.futures.Future``.
    """

    def _submit(self, request: Any) -> PipelinedReply:
        request.driver = self._driver
        self._driver.submit(request, True)
        # Without an __init__: one call of Python less for each of thousands.
        reply = PipelinedReply()
        reply._request = request
        return reply


public(ReplyPipeline, "Client.pipeline")


if TYPE_CHECKING:
    _Operations = Requests  # what each returns here is stated by the subclass
else:
    _Operations = Operations


class BlockingOperations(Submitter, _Operations):
    """The operations, each of which waits for its answer and returns the result."""

    _driver: Any
    _kind = BlockingReply
    _operation_timeout: float | None

    def _submit(self, request: Any) -> Any:
        driver = request.driver = self._driver
        limit = self._operation_timeout
        if limit is None:
            driver.round_trip(request)
        else:
            driver.submit(request)  # with a time limit the caller must not get stuck in a receive
        return request.result(limit) if request.outcome is None else request.value()


def core_of(client: ClientLike) -> Any:
    """What the recipes ask of a client; TypeError if it is none, or not for threads."""
    core = getattr(client, "_core", None)
    if core is None:
        wanted = "client must be a Client or a Supervisor"
        raise TypeError(f"{wanted}, not {type(client).__name__}")
    return core


def algorithms_of(values: tuple[Any, ...], taker: str, kind: type[Any]) -> list[Any]:
    """What runs each of the values; TypeError for one that is not of this kind."""
    wanted = f"a {taker} takes locks such as SequentialLock"
    return [check_kind(wanted, value, kind)._algorithm for value in values]


def wrapped(kind: type[T], algorithm: Any) -> Any:
    """The object for threads that runs this algorithm; None for None.

    It is the same one for as long as it is in use, so that users can compare it by ``is``.
    """
    if algorithm is None:
        return None
    known = getattr(algorithm, "_wrapper", None)
    wrapper: Any = known and known()
    if wrapper is None:
        wrapper = kind.__new__(kind)
        wrapper._algorithm = algorithm
        algorithm._wrapper = ref(wrapper)
    return wrapper


def each_wrapped(kind: type[T], algorithms: Iterator[Any]) -> Iterator[Any]:
    """The same for each of them, as they come."""
    for algorithm in algorithms:
        yield wrapped(kind, algorithm)


class With:
    """An object that a thread enters by a ``with``; see :mod:`zkwire.recipes._recipe`.

    The value is this object, or that for which it was made, where the algorithm gives itself.

    The ``try`` stands here as well as there, since an interrupt can come right after the coroutine
    has ended.  Before the first instruction of ``__exit__``, as with any context manager, nothing
    can be done.
    """

    _algorithm: Any  # an Enterable
    _made_for: Any = None  # another object for threads; None: it is entered itself

    def __enter__(self) -> Self:
        entered = self._algorithm._owned
        try:
            value: Self = complete(self._algorithm._enter_body)
            wrapper = self if self._made_for is None else self._made_for
            return wrapper if value is wrapper._algorithm else value
        except LockInUseError:
            raise
        except BaseException:
            if not entered:
                self._algorithm._abandon()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            complete(self._algorithm._leave_body, kind)
        except BaseException:
            self._algorithm._abandon()
            raise


class Entered(With, Bound):
    """The same for what a method of the object ``wrapper`` has returned: for one ``with``."""

    def __init__(self, algorithm: Any, wrapper: Any) -> None:
        self._algorithm = algorithm
        self._made_for = wrapper

    if TYPE_CHECKING:

        def __enter__(self) -> Any: ...


class Sized:
    """What has a length that a server knows."""

    _algorithm: Any

    def __len__(self) -> int:
        """How many items there are, claimed ones included; asks a server, as ``size`` does."""
        return complete(self._algorithm.size)

    def __bool__(self) -> bool:
        """True, as of any object: asks no server."""
        return True
