"""The playground: a lesson, perhaps with other code and with faults at chosen moments, as frames.

A run is a function of what is asked for: the same lesson, flags, code and actions give the same
frames, to the byte.  So a step back is an earlier frame, and a link that names the four shows the
same run again.  An action changes nothing that comes before its moment.  This module must not know
what shows the frames: a page asks by :func:`answer`, in JSON.
"""

from __future__ import annotations

import json
import linecache
import re
import sys
from argparse import ArgumentParser
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from inspect import getmodule, getsource
from io import StringIO
from traceback import extract_tb
from types import ModuleType
from typing import NamedTuple

from docs.playground.bug import NAMES, Bug, Found, Replay, explored
from docs.playground.holders import Holders
from zkwire.cli.command import UsageError
from zkwire.cli.lessons.command import arg_of
from zkwire.cli.lessons.lesson import TABLE, Lesson, find
from zkwire.cli.lessons.show import picture_of, rows_of
from zkwire.cli.lessons.stage import Event, Stage
from zkwire.cli.picture import Step, svg
from zkwire.testing.simulation.client import Step as SimulationStep
from zkwire.testing.simulation.client import ViolationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence
    from typing import Any, NoReturn

    from zkwire.cli.lessons.lesson import Flag
    from zkwire.testing.simulation.client import Client

OWN_CODE = "your code"
_EDITED = "docs.playground.edited"
_LONG = re.compile(r"[^\s/]{25,}")  # the name of a node
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


class Take(NamedTuple):
    """An event, and what a look at the clients and locks shows at its moment."""

    event: Event
    sight: dict[str, Any]


class Directed(Stage):
    """A stage with actions; ``takes`` is what has happened.

    ``marks``: of each action that has happened, how many events were told before it.
    """

    def __init__(self, flags: Namespace, actions: Sequence[Action], *, servers: int) -> None:
        super().__init__(flags, self._take, servers=servers)
        self.takes: list[Take] = []
        self.marks: list[int] = []
        self._server = "S1" if servers > 1 else "server"
        self._actions = sorted(actions, key=lambda action: action.at)
        self._holders = Holders(self._play)
        self._play.between = self._act

    def _take(self, event: Event) -> None:
        self.takes.append(Take(event, self._holders.look()))

    def _act(self) -> None:
        while self._actions and self._actions[0].at <= len(self.takes):
            action = self._actions.pop(0)
            self.marks.append(len(self.takes))
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
            self._play.perform(SimulationStep("expire", client.name))

    def _note(self, client: Client, text: str) -> None:
        server = self._play.server_of(client.link) if client.link else self._server
        self._tell(Event(self.now, "cut", text, client.name, server))


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
    """All lessons, and the recipes with a mistake: name, what each is about, code and flags."""
    listed: list[dict[str, Any]] = []
    for name, (minutes, about) in TABLE.items():
        flags = [f"{flag.name}: {flag.does}" for flag in find(name).flags]
        title = f"{about} ({minutes} min)"
        listed.append({"name": name, "about": title, "flags": flags, "bug": False})
    listed += [{"name": n, "about": _found(n).title, "flags": [], "bug": True} for n in NAMES]
    return [{**one, "code": source(_found(one["name"]))} for one in listed]


def source(lesson: Lesson | Bug) -> str:
    """The Python of a lesson, its whole module."""
    module = getmodule(lesson.run)
    assert module is not None
    return getsource(module)


def run(request: dict[str, Any]) -> dict[str, Any]:
    """A run, from its beginning to its end.

    ``lesson`` is its name, ``flags`` are typed as on a command line, ``code`` takes the place of
    the lesson's own if it is not empty, ``actions`` are lists with the fields of `Action`.  With
    ``search``, the explorer looks for a run in which the mistake of a recipe shows.

    The result has ``title``, ``cast``, ``remember``, ``in_code``, the ``frames``, the ``marks`` of
    the actions, the ``landing`` (how many events lead to what fails), what was ``printed``, and
    ``error``: what kept the run from beginning, or "".
    """
    name, printed = request["lesson"], StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            lesson = _edited(request["code"]) if request.get("code") else _found(name)
            typed = request.get("flags") or _QUICKLY.get(name, "")
            flags = _flags([] if isinstance(lesson, Bug) else lesson.flags, typed)
            actions = [Action(*fields) for fields in request.get("actions", [])]
        except Exception as error:
            return {"error": _words(error), "frames": [], "marks": [], "printed": ""}
        marks: list[int] = []
        if isinstance(lesson, Bug):
            takes = _hunt(lesson, search=bool(request.get("search")))
        else:
            takes, marks = _direct(lesson, flags, actions)
    return {
        "title": lesson.title,
        "cast": lesson.cast,
        "remember": lesson.remember,
        "in_code": lesson.in_code,
        "frames": _frames(name, lesson, takes),
        "marks": marks,
        "landing": _landing([take.event for take in takes]),
        "printed": printed.getvalue(),
        "error": "",
    }


def _landing(events: list[Event]) -> int:
    """How many events a reader wants to see who has asked for a failure: up to that, and it."""
    failed = (at for at, event in enumerate(events, 1) if not event.passed)
    cut = (at for at, event in enumerate(events, 1) if event.kind == "cut")
    return next(failed, 0) or next(cut, 1)


def _direct(
    lesson: Lesson, flags: Namespace, actions: list[Action]
) -> tuple[list[Take], list[int]]:
    """What happens in a lesson, and where each action has happened."""
    stage = Directed(flags, actions, servers=lesson.servers)
    try:
        stage.run(lesson.run(stage))
    except Exception as error:
        stage.expect(False, f"no error ends the lesson, but {_words(error)}")
    return stage.takes, stage.marks


def _hunt(bug: Bug, *, search: bool) -> list[Take]:
    """A run of a recipe with a mistake: with ``search``, one in which it shows."""
    takes: list[Take] = []
    found = explored(bug) if search else Found("")
    play = Replay(bug, found, lambda event: takes.append(Take(event, holders.look())))
    holders = Holders(play)
    if found.words:
        play.tell(Event(0.0, "say", found.words))
    play.show()
    takes[-1] = takes[-1]._replace(sight=takes[-2].sight)  # at the end of a run all is put away
    return takes


def _frames(name: str, lesson: Lesson | Bug, takes: list[Take]) -> list[dict[str, Any]]:
    """A frame for each event but a ping: ``at`` is how many events it shows."""
    frames: list[dict[str, Any]] = []
    for at, drawn in as_frames(name, lesson, [take.event for take in takes]):
        event, sight = takes[at - 1]
        words = {"kind": event.kind, "text": event.text, "detail": event.detail}
        rows = [list(map(str, row)) for row in event.rows]
        more = {"client": event.actor, "passed": event.passed, "rows": rows, "svg": drawn}
        frames.append({"at": at, "time": round(event.time, 6), **words, **more, **sight})
    return frames


def _found(name: str) -> Lesson | Bug:
    """The lesson, or the recipe with a mistake, of this name."""
    if name not in NAMES:
        return find(name)
    bug: Bug = import_module(f"docs.playground.{name.replace('-', '_')}").LESSON
    return bug


def _edited(code: str) -> Lesson | Bug:
    """What this code makes."""
    module = ModuleType(_EDITED)
    sys.modules[_EDITED] = module  # where dataclasses look for the module of a class
    linecache.cache[OWN_CODE] = len(code), None, code.splitlines(keepends=True), OWN_CODE
    exec(compile(code, OWN_CODE, "exec", dont_inherit=True), module.__dict__)
    lesson = getattr(module, "LESSON", None)
    if not isinstance(lesson, Lesson | Bug):
        raise UsageError("the code makes no lesson: LESSON = Lesson(...) is missing")
    return lesson


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _flags(flags: Sequence[Flag], typed: str) -> Namespace:
    """These flags as they are typed; UsageError for what is none of them."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    for flag in flags:
        parser.add_argument(*arg_of(flag).names, **arg_of(flag).kind)
    parser.set_defaults(**{flag.dest: flag.default for flag in flags})
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


# --- frames ---------------------------------------------------------------------------------------


def as_frames(name: str, lesson: Lesson | Bug, events: list[Event]) -> Iterator[tuple[int, str]]:
    """How many events, and the picture of them, behind each event but a ping.

    What has happened so far is at its place in the picture of the whole.  Long names are shortened
    in their middle; the whole is shown by a viewer that hovers over it.
    """
    title = f"zkwire lesson {name}: {lesson.title}"
    picture = picture_of(title, lesson.cast, events, lesson.servers)
    picture = picture._replace(steps=tuple(map(_shortened, picture.steps)))
    for number, event in enumerate(events, 1):
        if event.frame is None or event.frame.kind != "ping":
            rows = rows_of(events[:number], list(picture.lanes))
            shown = sum(step is not None for _, step in rows)
            yield number, svg(picture._replace(shown=min(shown, len(picture.steps))))


def _shortened(step: Step) -> Step:
    label = _LONG.sub(lambda found: f"{found[0][:8]}…{found[0][-14:]}", step.label)
    return step if label == step.label else step._replace(label=label, more=step.label)
