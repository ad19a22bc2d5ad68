"""Runs a recipe's coroutine in the caller's thread."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterator
    from typing import Any, TypeVar

    T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result.  Every await in it must block in place."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError("a recipe suspended under the blocking client")


def iterate(items: AsyncGenerator[T, None]) -> Iterator[T]:
    """The items of an asynchronous generator, one after the other."""
    while True:
        try:
            item = run(items.asend(None))
        except StopAsyncIteration:
            return
        yield item
