"""What is one task's own, and the end of a task that holds a re-entrant lock.

No other task could release that.  The event loop calls back when a task is done.  One that waits
for what nothing refers to is never done: the collector ends it, in any thread.
"""

from __future__ import annotations

from asyncio import Task, current_task
from weakref import WeakKeyDictionary, WeakSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from zkwire.recipes.runtime import Owned

    T = TypeVar("T")


def value_of_each_task(make: Callable[[], T]) -> Callable[[], T]:
    """A function that returns the value of the task that calls it, made at the first call."""
    values: WeakKeyDictionary[Task[Any], T] = WeakKeyDictionary()

    def value() -> T:
        task = current_task()
        if task is None:
            raise RuntimeError("a re-entrant lock is its task's, and this is no task")
        if task not in values:
            values[task] = make()
        return values[task]

    return value


class _Owner:
    """A task, and the locks that it alone releases."""

    def __init__(self) -> None:
        self.locks: WeakSet[Owned] = WeakSet()
        task = current_task()
        assert task is not None
        self._name = f"the task {task.get_name()}"
        task.add_done_callback(self._tell)

    def _tell(self, _: object = None) -> None:
        for lock in tuple(self.locks):
            if lock._owned:
                lock._owner_ended(self._name)

    __del__ = _tell  # only the task has it, which may be collected while it waits


_owner_of_this_task = value_of_each_task(_Owner)


def tell_at_the_end_of_this_task(lock: Owned) -> None:
    """Tell the lock when this task ends and still owns it."""
    _owner_of_this_task().locks.add(lock)
