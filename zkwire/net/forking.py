"""What a forked child does with its parent's clients: it closes them, without a byte or a FIN.

The connection belongs to the parent, and the threads that would serve it do not exist in the child.
"""

from __future__ import annotations

import os
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Shared(Protocol):
        """Something that a fork duplicates."""

        def after_fork(self) -> None: ...


_drivers: weakref.WeakSet[Shared] = weakref.WeakSet()


def remember(driver: Shared) -> None:
    """Have ``driver.after_fork`` called in every forked child."""
    _drivers.add(driver)


def _after_fork_in_child() -> None:
    for driver in list(_drivers):
        driver.after_fork()
    _drivers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
