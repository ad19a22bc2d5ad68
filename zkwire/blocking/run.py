"""Runs a coroutine in the caller's thread, and makes methods of that.

What is stated of such a method (its signature, its docstring, its annotations) is that of the one
definition, with the type that the thread gets.
"""

from __future__ import annotations

import warnings
from functools import wraps
from types import FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
    from typing import Any, Concatenate, ParamSpec, TypeVar

    from zkwire.operations import Reply

    P = ParamSpec("P")
    T = TypeVar("T")


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
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError(SUSPENDED)


def complete(make: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of the coroutine that ``make`` returns, run as :func:`run` does.

    No call stands between its making and its first step, so that no interrupt, and no full stack,
    leaves it behind in a traceback.
    """
    coroutine = make(*args, **kwargs)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
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
    """The coroutine method, run in the caller's thread."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return complete(method, self, *args, **kwargs)
        except TypeError as error:
            _by_public_name(error, method, self)
            raise

    return call


def _by_public_name(error: TypeError, method: Any, face: object) -> None:
    """Have Python's message about arguments name the class that the caller knows."""
    text, internal = str(error), f"{method.__qualname__}()"
    if internal in text:
        error.args = (text.replace(internal, f"{type(face).__name__}.{method.__name__}()"),)


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """The algorithm's method, run in the caller's thread.

    It is found by its name, so a subclass of the algorithm can override it.
    """
    name = method.__name__

    @wraps(method)
    def call(face: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        work: Callable[P, Coroutine[Any, Any, T]] = getattr(face._algorithm, name)
        try:
            return complete(work, *args, **kwargs)
        except TypeError as error:
            _by_public_name(error, work, face)
            raise

    return call


def runs(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[[Callable[..., object]], Callable[Concatenate[Any, P], T]]:
    """A decorator: what it decorates only gives ``blocking(method)`` its name."""
    return lambda _: blocking(method)


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
    copy = FunctionType(method.__code__, method.__globals__, method.__name__, method.__defaults__)
    copy.__kwdefaults__, copy.__doc__ = method.__kwdefaults__, method.__doc__
    copy.__module__, copy.__qualname__ = method.__module__, method.__qualname__
    stated: str = method.__annotations__["return"].removeprefix(without)
    if without.endswith("["):
        stated = stated.removesuffix("]")
    copy.__annotations__ = {**method.__annotations__, "return": stated}
    return copy
