"""``zkwire lesson``: the list of lessons, and one of them, run.

A lesson checks what it says; the exit status is 1 if something in it was not as expected.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack, suppress
from typing import Any

from zkwire.cli.command import Command, UsageError
from zkwire.cli.context import Context
from zkwire.cli.files import whole
from zkwire.cli.lessons.events import Event, Record
from zkwire.cli.lessons.lesson import TABLE, Flag, Lesson, find
from zkwire.cli.lessons.server_stage import ServerStage
from zkwire.cli.lessons.show import LeftError, legend, only_ascii, picture_of, shown_by
from zkwire.cli.lessons.stage import Stage
from zkwire.cli.output import DONE, REFUSED
from zkwire.cli.picture import svg
from zkwire.errors import ZooKeeperError
from zkwire.testing.simulation import ViolationError


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help="the lesson; without it, the list")
    add("--all", action="store_true", help="all lessons, one after the other")
    add("--play", action="store_true", help="as a film: a terminal waits at no question")
    add("--fast", action="store_true", help="no time to read on a terminal")
    add("--legend", action="store_true", help="what the signs and the numbers mean")
    add("--bytes", action="store_true", help="the bytes of each frame below it")
    add("--svg", metavar="FILE", help="draw the lesson into this file")
    add("--source", action="store_true", help="the Python of the lesson")
    add("--server", "-s", metavar="HOST:PORT", help="play it on this server, if the lesson can be")
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
        return
    kind = flag.kind or str
    metavar = None if flag.choices else "N" if kind is int else "TIME"
    group.add_argument(flag.name, type=kind, choices=flag.choices, metavar=metavar, help=flag.does)


def _lesson(context: Context, asked: argparse.Namespace) -> int:
    """
    zkwire lesson                         # the list
    zkwire lesson lost-reply              # one of them
    zkwire lesson lost-reply --op delete  # the same, with another outcome

    Each lesson runs zkwire's client against zkwire's server in this process, on a
    virtual clock: no server is needed, and what it shows has happened.  A terminal
    waits at each question, for your guess and Enter.
    """
    if asked.legend:
        context.output.text("\n".join(legend(ascii_only=only_ascii())))
        return DONE
    if (asked.all or asked.name is None) and asked.svg:
        raise UsageError("one lesson makes a drawing: name it")
    if not asked.all and asked.name is None:
        return _list(context)
    status = DONE
    for name in TABLE if asked.all else [asked.name]:
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
            if asked.svg:
                file = whole(asked.svg, private=False)
                setattr(asked, "svg", files.enter_context(file))  # noqa: B010
            if play(context, name, lesson, flags).failures:
                status = REFUSED
    return status


def _check_server(name: str, lesson: Lesson, asked: argparse.Namespace) -> None:
    """UsageError for what needs the virtual clock, ValueError for what is no HOST:PORT."""
    for flag in lesson.flags:
        if flag.needs and getattr(asked, flag.dest) is not None:
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
    for other in sorted({flag for each in TABLE for flag in find(each).flags}):
        if other.name not in own and getattr(asked, other.dest) is not None:
            has = ", ".join(own) or "none"
            raise UsageError(f"the lesson {name} has no {other.name}; it has {has}")
    given = {flag: getattr(asked, flag.dest) for flag in lesson.flags}
    return argparse.Namespace(
        **{flag.dest: flag.default if value is None else value for flag, value in given.items()}
    )


def _source(lesson: Lesson) -> str:
    from inspect import getmodule, getsource

    module = getmodule(lesson.run)
    assert module is not None
    return getsource(module).rstrip()


def play(context: Context, name: str, lesson: Lesson, flags: argparse.Namespace) -> Record:
    """Run a lesson, and show it as the options say; the record of what has happened."""
    asked = context.options
    stage: Any = None
    with suppress(LeftError):
        if asked.server is not None:
            stage = ServerStage(flags, asked.server, connect_timeout=asked.connect_timeout)
            _run_on_server(context, name, lesson, stage)
        else:
            shown = shown_by(context, name, lesson)
            stage = Stage(flags, shown.show, servers=lesson.servers)
            _run(lesson, stage)
            shown.finish(stage.failures)
    if asked.svg:
        title = f"zkwire lesson {name}: {lesson.title}"
        drawn = svg(picture_of(title, lesson.cast, stage.shown, lesson.servers))
        asked.svg.write(drawn.encode())
    record: Record = stage
    return record


def _run(lesson: Lesson, stage: Stage) -> None:
    try:
        stage.run(lesson.run(stage))
    except (ZooKeeperError, ViolationError) as error:
        if isinstance(error.__cause__, LeftError):
            raise error.__cause__ from None
        stage.expect(False, f"no error ends the lesson, but {type(error).__name__}: {error}")


def _run_on_server(context: Context, name: str, lesson: Lesson, stage: ServerStage) -> None:
    """Run it there, and show it afterwards: a server does not wait for a reader."""
    words = f"Played on {stage.server}, below {stage.root}, which clients see as / here."
    stage.shown.append(Event(0.0, "say", words))
    run: Any = lesson.run
    try:
        stage.run(run(stage))
    finally:
        shown = shown_by(context, name, lesson)
        for event in stage.shown:
            shown.show(event)
    shown.finish(stage.failures)


COMMANDS = {
    "lesson": Command(_lesson, _arguments, in_shell=False, connects=False),
}
