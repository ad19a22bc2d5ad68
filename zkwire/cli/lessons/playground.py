"""The playground: a lesson, perhaps with other code and with faults at chosen moments, as frames.

A run is a function of what is asked for: the same lesson, flags, code and actions give the same
frames, to the byte.  So a step back is an earlier frame, and a link that names the four shows the
same run again.  An action changes nothing that comes before its moment.  This module must not know
what shows the frames: a page asks by :func:`answer`, in JSON.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from contextlib import redirect_stderr, redirect_stdout
from inspect import getmodule, getsource
from io import StringIO
from traceback import extract_tb
from types import ModuleType
from typing import NamedTuple

from zkwire.cli.command import UsageError
from zkwire.cli.lessons.command import add_flag
from zkwire.cli.lessons.event import CUT, Event
from zkwire.cli.lessons.holders import Holders
from zkwire.cli.lessons.lesson import TABLE, Lesson, find
from zkwire.cli.lessons.picture import as_frames
from zkwire.cli.lessons.stage import Stage
from zkwire.testing.simulation.client import Step, ViolationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from zkwire.testing.simulation.client import Client

OWN_CODE = "your code"
_EDITED = "zkwire.cli.lessons.edited"
_QUICKLY = {"herd": "--waiters 8"}  # 32 take seconds in a browser


class Action(NamedTuple):
    """A fault: behind so many events (``at``), for this client; a pause lasts ``seconds``.

    ``kind``: ``cut``, its connection is lost; ``pause``, its process stands still; ``expire``, the
    server ends its session.
    """

    at: int
    kind: str
    client: str
    seconds: float = 0.0


class Directed(Stage):
    """A stage with actions; keeps what it has ``told``, and the ``sights`` of that moment.

    ``marks``: of each action that has happened, how many events were told before it.
    """

    def __init__(self, flags: Namespace, actions: Sequence[Action], *, servers: int) -> None:
        super().__init__(flags, self._take, servers=servers)
        self.told: list[Event] = []
        self.sights: list[dict[str, Any]] = []
        self.marks: list[int] = []
        self._server = "S1" if servers > 1 else "server"
        self._actions = sorted(actions, key=lambda action: action.at)
        self._holders = Holders(self._play)
        self._play.between = self._act

    def _take(self, event: Event) -> None:
        self.told.append(event)
        self.sights.append(self._holders.look())

    def _act(self) -> None:
        while self._actions and self._actions[0].at <= len(self.told):
            action = self._actions.pop(0)
            self.marks.append(len(self.told))
            client = next((c for c in self._play.clients if c.name == action.client), None)
            if client is None:
                self.say(f"{action.client} is not here: no {action.kind}.")
            else:
                _ACTIONS[action.kind](self, client, action.seconds)

    def _cut_now(self, client: Client, _: float) -> None:
        if client.link is None:
            self.say(f"{client.name} has no connection that could be cut.")
        elif client.paused:  # it hears of that when it goes on
            self._note(client, "connection cut, and its process stands still")
            self._play.processor.lost(client.link.connection)
        else:
            self._play.cut(client)

    def _pause_now(self, client: Client, seconds: float) -> None:
        client.paused_until = self._play.now + seconds  # the play tells that

    def _expire_now(self, client: Client, _: float) -> None:
        if self._play.sessions.get(client.session.session_id) is None:
            self.say(f"{client.name} has no session that could expire.")
        else:
            self._play.perform(Step("expire", client.name))

    def _note(self, client: Client, text: str) -> None:
        server = self._play.server_of(client.link) if client.link else self._server
        self._tell(Event(self.now, CUT, text, client.name, server))


_ACTIONS = {
    "cut": Directed._cut_now,
    "pause": Directed._pause_now,
    "expire": Directed._expire_now,
}


def answer(asked: str) -> str:
    """What a page asks, and what it is told, as JSON; see :func:`lessons` and :func:`run`."""
    request = json.loads(asked)
    return json.dumps(lessons() if request["ask"] == "lessons" else run(request))


def lessons() -> list[dict[str, Any]]:
    """All lessons: name, minutes, what each is about, its code and its flags."""
    return [
        {
            "name": name,
            "minutes": minutes,
            "about": about,
            "code": source(find(name)),
            "flags": [f"{flag.name}: {flag.does}" for flag in find(name).flags],
        }
        for name, (minutes, about) in TABLE.items()
    ]


def source(lesson: Lesson) -> str:
    """The Python of a lesson, its whole module."""
    module = getmodule(lesson.run)
    assert module is not None
    return getsource(module)


def run(request: dict[str, Any]) -> dict[str, Any]:
    """A run, from its beginning to its end.

    ``lesson`` is its name, ``flags`` are typed as on a command line, ``code`` takes the place of
    the lesson's own if it is not empty, ``actions`` are lists with the fields of `Action`.

    The result has ``title``, ``cast``, ``remember``, ``in_code``, the ``frames``, the ``marks`` of
    the actions, what was ``printed``, and ``error``: what kept the run from beginning, or "".
    """
    name, printed = request["lesson"], StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            lesson = _edited(request["code"]) if request.get("code") else find(name)
            flags = _flags(lesson, request.get("flags") or _QUICKLY.get(name, ""))
            actions = [Action(*fields) for fields in request.get("actions", [])]
        except Exception as error:
            return {"error": _words(error), "frames": [], "marks": [], "printed": ""}
        stage = Directed(flags, actions, servers=lesson.servers)
        try:
            stage.run(lesson.run(stage))
        except Exception as error:
            stage.expect(False, f"no error ends the lesson, but {_words(error)}")
    return {
        "title": lesson.title,
        "cast": lesson.cast,
        "remember": lesson.remember,
        "in_code": lesson.in_code,
        "frames": _frames(name, lesson, stage),
        "marks": stage.marks,
        "printed": printed.getvalue(),
        "error": "",
    }


def _frames(name: str, lesson: Lesson, stage: Directed) -> list[dict[str, Any]]:
    """A frame for each event but a ping: ``at`` is how many events it shows."""
    frames: list[dict[str, Any]] = []
    for at, svg in as_frames(name, lesson, stage.told):
        event = stage.told[at - 1]
        words = {"kind": event.kind, "text": event.text, "detail": event.detail}
        rows = [list(map(str, row)) for row in event.rows]
        more = {"client": event.actor, "passed": event.passed, "rows": rows, "svg": svg}
        frames.append(
            {"at": at, "time": round(event.time, 6), **words, **more, **stage.sights[at - 1]}
        )
    return frames


def _edited(code: str) -> Lesson:
    """The lesson that this code makes."""
    module = ModuleType(_EDITED)
    sys.modules[_EDITED] = module  # where dataclasses look for the module of a class
    exec(compile(code, OWN_CODE, "exec", dont_inherit=True), module.__dict__)
    lesson = getattr(module, "LESSON", None)
    if not isinstance(lesson, Lesson):
        raise UsageError("the code makes no lesson: LESSON = Lesson(...) is missing")
    return lesson


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _flags(lesson: Lesson, typed: str) -> Namespace:
    """The lesson's flags; UsageError for what is none of them."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    for flag in lesson.flags:
        add_flag(parser, flag)
    parser.set_defaults(**{flag.name[2:].replace("-", "_"): flag.default for flag in lesson.flags})
    return parser.parse_args(typed.split())


def _words(error: Exception) -> str:
    """An error, and the line of the reader's code that it comes from."""
    if isinstance(error, ViolationError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    lines = [at.lineno for at in extract_tb(error.__traceback__) if at.filename == OWN_CODE]
    if isinstance(error, SyntaxError):
        lines, error = [error.lineno], SyntaxError(error.msg)
    where = f" (line {lines[-1]} of the code)" if lines else ""
    return f"{type(error).__name__}: {error}{where}"
