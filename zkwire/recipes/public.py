"""The methods of a public class, by its own name.

Python's messages (an argument that does not exist, one that is missing) name the class that defines
a method, and that is an internal one for most methods here.
"""

from __future__ import annotations

from types import FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Class = TypeVar("Class", bound=type)


def public(kind: Class, shown: str = "") -> Class:
    """A decorator: the class has its public methods itself, also those that it inherits.

    ``shown`` is what messages call it, where that is not its name.
    """
    for name in dir(kind):
        method = None if name.startswith("_") else _defined(kind, name)
        if type(method) is FunctionType:
            setattr(kind, name, renamed(method, f"{shown or kind.__qualname__}.{name}"))
    return kind


def _defined(kind: type, name: str) -> Any:
    return next(base.__dict__[name] for base in kind.__mro__ if name in base.__dict__)


def renamed(method: FunctionType, name: str) -> FunctionType:
    """The same code under another name."""
    copy = FunctionType(
        method.__code__, method.__globals__, method.__name__, method.__defaults__,
        method.__closure__,
    )  # fmt: skip
    copy.__kwdefaults__, copy.__doc__ = method.__kwdefaults__, method.__doc__
    copy.__module__, copy.__qualname__ = method.__module__, name
    copy.__annotations__ = method.__annotations__
    copy.__dict__.update(method.__dict__)
    return copy
