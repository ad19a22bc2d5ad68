"""What a lesson is, and the table of all of them, in the order of a course."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, NamedTuple

from zkwire.cli.lessons.stage import Stage


class Flag(NamedTuple):
    """A flag that changes the outcome; without a ``kind`` it is a switch."""

    name: str
    does: str
    kind: Callable[[str], Any] | None = None
    default: Any = False
    choices: tuple[str, ...] | None = None

    @property
    def dest(self) -> str:
        """Its name among the parsed arguments."""
        return self.name.removeprefix("--").replace("-", "_")


class Lesson(NamedTuple):
    """One lesson.

    ``cast``: its clients and servers, in words.  ``run`` is the lesson, ``remember`` its one
    sentence, ``in_code`` what of zkwire takes care of it.  ``flags`` are its own.
    ``bytes_of``: a client whose frames are explained byte by byte.
    """

    title: str
    cast: str
    run: Callable[[Stage], Coroutine[Any, Any, None]]
    remember: str
    in_code: str
    flags: tuple[Flag, ...] = ()
    servers: int = 1
    bytes_of: str = ""


# Its name, its minutes, and what it is about; its module has the same name.
TABLE: dict[str, tuple[int, str]] = {
    "handshake": (3, "what a session is made of"),
    "heartbeat": (4, "pings, and how a session expires"),
    "watch-gap": (5, "a watch is one doorbell, not a diary"),
    "lost-reply": (6, "did my create happen?"),
    "herd": (4, "why each waiter watches only the one in front"),
    "session-move": (5, "one session, two roads"),
    "paused-holder": (6, "why a lock needs a fence"),
    "connected-is-not-ready": (3, "what a new connection does not know"),
    "bytes": (10, "a client in 40 lines"),
}


def name_of(error: Exception) -> str:
    """The name of an error's class."""
    return type(error).__name__


def find(name: str) -> Lesson:
    """The lesson of this name; KeyError if there is none."""
    lesson: Lesson = import_module(f"zkwire.cli.lessons.{name.replace('-', '_')}").LESSON
    return lesson
