"""Options of a client that are for tests alone, and that no signature shows.

``_resolver`` looks up names, ``_now`` is the clock, ``_seed`` makes what is random repeatable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def hooked(kind: Callable[..., T]) -> Callable[..., T]:
    """The same class, which a type checker lets have these options."""
    return kind
