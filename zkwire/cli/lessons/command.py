"""``zkwire lesson``: the list of lessons, and one of them, run.

A lesson checks what it says; the exit status is 1 if something in it was not as expected.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from zkwire.cli.command import Command, UsageError
from zkwire.cli.exits import DONE, REFUSED
from zkwire.cli.files import whole
from zkwire.cli.lessons.lesson import TABLE, find
from zkwire.errors import ZooKeeperError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from zkwire.cli.context import Context
    from zkwire.cli.lessons.event import Event
    from zkwire.cli.lessons.lesson import Flag, Lesson
    from zkwire.cli.lessons.objects import Objects
    from zkwire.cli.lessons.terminal import Terminal


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="the lesson; without it, the list")
    parser.add_argument("--all", action="store_true", help="all lessons, one after the other")
    parser.add_argument("--step", action="store_true", help="wait for Enter after words")
    parser.add_argument("--fast", action="store_true", help="no time to read on a terminal")
    parser.add_argument("--bytes", action="store_true", help="the bytes of each frame below it")
    parser.add_argument("--svg", metavar="FILE", help="draw the lesson into this file")
    parser.add_argument("--html", metavar="FILE", help="write it as a page, with all bytes")
    parser.add_argument("--source", action="store_true", help="the Python of the lesson")
    parser.add_argument(
        "--server", "-s", metavar="HOST:PORT", help="play it on this server, if the lesson can be"
    )
    given: set[str] = set()
    for name in TABLE:
        group = parser.add_argument_group(f"break it: {name}")
        for flag in find(name).flags:
            if flag.name not in given:
                given.add(flag.name)
                add_flag(group, flag)


def add_flag(group: argparse._ActionsContainer, flag: Flag) -> None:
    """Have a parser take this flag; None where it is not given."""
    if flag.kind is None and flag.choices is None:
        group.add_argument(flag.name, action="store_true", default=None, help=flag.does)
    else:
        kind = flag.kind or str
        metavar = None if flag.choices else "N" if kind is int else "TIME"
        group.add_argument(
            flag.name, type=kind, choices=flag.choices, metavar=metavar, help=flag.does
        )


def _lesson(context: Context, asked: argparse.Namespace) -> int:
    if (asked.all or asked.name is None) and (asked.svg or asked.html):
        raise UsageError("one lesson makes a drawing or a page: name it")
    if asked.all:
        names = list(TABLE)
    elif asked.name is None:
        return _list(context)
    else:
        names = [asked.name]
    status = DONE
    for name in names:
        if name not in TABLE:
            raise UsageError(f"there is no lesson {name!r}; there are {', '.join(TABLE)}")
        lesson = find(name)
        if asked.server is not None and not asked.source:
            _check_server(name, lesson, asked)
        flags = _flags(name, lesson, asked)
        if asked.source:
            context.output.text(_source(lesson))
            continue
        with ExitStack() as files:  # a bad name is an error before the lesson
            for kind in filter(vars(asked).get, ("svg", "html")):
                file = whole(getattr(asked, kind), private=False)
                setattr(asked, kind, files.enter_context(file))
            if not _run(context, name, lesson, flags):
                status = REFUSED
    return status


def _check_server(name: str, lesson: Lesson, asked: argparse.Namespace) -> None:
    """UsageError for what needs the virtual clock, ValueError for what is no HOST:PORT."""
    for flag in lesson.flags:
        if flag.needs and getattr(asked, _dest(flag.name)) is not None:
            raise UsageError(f"{name} {flag.name} needs the virtual clock: {flag.needs}")
    if lesson.needs:
        raise UsageError(f"the lesson {name} needs the virtual clock: {lesson.needs}")
    host, colon, port = asked.server.rpartition(":")
    if not (host and colon and port.isdecimal()) or "," in host:
        raise UsageError(f"--server takes one HOST:PORT here, not {asked.server!r}")


def _list(context: Context) -> int:
    out = context.output
    for name, (minutes, about) in TABLE.items():
        if out.json:
            out.record({"lesson": name, "minutes": minutes, "about": about})
        else:
            out.line(f"{name:24} {minutes:2} min  {about}")
    return DONE


def _flags(name: str, lesson: Lesson, asked: argparse.Namespace) -> argparse.Namespace:
    """The lesson's own flags; UsageError for a flag of another lesson."""
    own = {flag.name: flag for flag in lesson.flags}
    others = {flag.name for other in TABLE for flag in find(other).flags} - own.keys()
    for other in sorted(others):
        if getattr(asked, _dest(other)) is not None:
            raise UsageError(f"the lesson {name} has no {other}; it has {', '.join(own) or 'none'}")
    values = {_dest(f.name): getattr(asked, _dest(f.name)) for f in lesson.flags}
    for flag in lesson.flags:
        if values[_dest(flag.name)] is None:
            values[_dest(flag.name)] = flag.default
    return argparse.Namespace(**values)


def _dest(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _source(lesson: Lesson) -> str:
    from inspect import getmodule, getsource

    module = getmodule(lesson.run)
    assert module is not None
    return getsource(module).rstrip()


def _run(context: Context, name: str, lesson: Lesson, flags: argparse.Namespace) -> bool:
    """Run a lesson; whether all was as expected."""
    from zkwire.testing.simulation import ViolationError

    if context.options.server is not None:
        return _run_on_server(context, name, lesson, flags)
    from zkwire.cli.lessons.stage import Stage

    shown = _shown_by(context, name, lesson)
    events: list[Event] = []

    def tell(event: Event) -> None:
        events.append(event)
        shown.show(event)

    stage = Stage(flags, tell, servers=lesson.servers)
    try:
        stage.run(lesson.run(stage))
    except (ZooKeeperError, ViolationError) as error:
        stage.expect(False, f"no error ends the lesson, but {type(error).__name__}: {error}")
    shown.finish(stage.failures)
    _draw(context.options, name, lesson, events)
    return not stage.failures


def _run_on_server(context: Context, name: str, lesson: Lesson, flags: argparse.Namespace) -> bool:
    """Run it there, and show it afterwards: a server does not wait for a reader."""
    from zkwire.cli.interrupts import ending
    from zkwire.cli.lessons.event import SAY, Event
    from zkwire.cli.lessons.server_stage import ServerStage

    asked = context.options
    stage: Any = ServerStage(
        flags, lambda event: None, asked.server, connect_timeout=asked.connect_timeout
    )
    words = f"Played on {asked.server}, below {stage.root}, which clients see as / here."
    try:
        with ending():
            stage.run(lesson.run(stage))
    finally:
        shown = _shown_by(context, name, lesson)
        events = [Event(0.0, SAY, words), *stage.shown]
        for event in events:
            shown.show(event)
    shown.finish(stage.failures)
    _draw(asked, name, lesson, events)
    return not stage.failures


def _draw(asked: argparse.Namespace, name: str, lesson: Lesson, events: list[Event]) -> None:
    """Write the files that are wanted."""
    if not (asked.svg or asked.html):
        return
    from zkwire.cli.lessons.picture import as_html, as_svg

    for file, form in ((asked.svg, as_svg), (asked.html, as_html)):
        if file:
            file.write(form(name, lesson, events).encode())


def _shown_by(context: Context, name: str, lesson: Lesson) -> Objects | Terminal:
    from zkwire.cli.lessons.objects import Objects
    from zkwire.cli.lessons.terminal import Terminal

    asked, out = context.options, context.output
    if out.json:
        return Objects(out, name, lesson, tables=asked.bytes)
    pauses = out.terminal and not (asked.fast or asked.step)
    return Terminal(out, name, lesson, step=asked.step, pauses=pauses, tables=asked.bytes)


COMMANDS = {
    "lesson": Command(
        _lesson,
        _arguments,
        examples=(
            "zkwire lesson                         # the list",
            "zkwire lesson lost-reply              # one of them",
            "zkwire lesson lost-reply --op delete  # the same, with another outcome",
        ),
        details="\n".join(
            [
                "Each lesson runs zkwire's client against zkwire's server in this process, on a",
                "virtual clock: no server is needed, and what it shows has happened.",
            ]
        ),
        in_shell=False,
        connects=False,
    ),
}
