"""``zkwire lesson``: the list of lessons, and one of them, run.

A lesson checks what it says; the exit status is 1 if something in it was not as expected.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack, suppress
from inspect import getsource

from zkwire.cli.command import Arg, Command, Group, UsageError, arg, flag
from zkwire.cli.context import Context
from zkwire.cli.files import whole
from zkwire.cli.lessons.lesson import TABLE, Flag, Lesson, find
from zkwire.cli.lessons.show import LeftError, legend, picture_of, shown_by
from zkwire.cli.lessons.stage import Stage
from zkwire.cli.output import DONE, REFUSED, only_ascii
from zkwire.cli.picture import svg
from zkwire.errors import ZooKeeperError
from zkwire.testing.simulation import ViolationError


def arg_of(each: Flag) -> Arg:
    """The argument that this flag is; None where it is not given."""
    if each.kind is None and each.choices is None:
        return flag(each.name, each.does, default=None)
    metavar = None if each.choices else "N" if each.kind is int else "TIME"
    given = {"type": each.kind or str, "choices": each.choices, "metavar": metavar}
    return arg(each.name, help=each.does, **given)


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
        raise UsageError("--svg draws one lesson: name it")
    if not asked.all and asked.name is None:
        return _list(context)
    names = list(TABLE) if asked.all else [str(asked.name)]
    if names[0] not in TABLE:
        raise UsageError(f"there is no lesson {asked.name!r}; there are {', '.join(TABLE)}")
    status = DONE
    with suppress(LeftError):
        for name in names:
            status = _one(context, name, asked) or status
    return status


def _one(context: Context, name: str, asked: argparse.Namespace) -> int:
    lesson = find(name)
    flags = _flags(name, lesson, asked)
    if asked.source:
        context.output.text(getsource(sys.modules[lesson.run.__module__]).rstrip())
        return DONE
    with ExitStack() as files:  # a bad name is an error before the lesson
        file = files.enter_context(whole(asked.svg, private=False)) if asked.svg else None
        stage = play(context, name, lesson, flags)
        if file is not None:
            title = f"zkwire lesson {name}: {lesson.title}"
            drawn = svg(picture_of(title, lesson.cast, stage.shown, lesson.servers))
            file.write(drawn.encode())
    return REFUSED if stage.failures else DONE


def _list(context: Context) -> int:
    for name, (minutes, about) in TABLE.items():
        fields = {"lesson": name, "minutes": minutes, "about": about}
        context.output.result(fields, [f"{name:24} {minutes:2} min  {about}"])
    return DONE


def _flags(name: str, lesson: Lesson, asked: argparse.Namespace) -> argparse.Namespace:
    """The lesson's own flags; UsageError for a flag of another lesson."""
    own = {each.name: each for each in lesson.flags}
    for other in sorted({each for any_one in TABLE for each in find(any_one).flags}):
        if other.name not in own and getattr(asked, other.dest) is not None:
            has = ", ".join(own) or "none"
            raise UsageError(f"the lesson {name} has no {other.name}; it has {has}")
    chosen = ((each, getattr(asked, each.dest)) for each in lesson.flags)
    return argparse.Namespace(**{e.dest: e.default if v is None else v for e, v in chosen})


def play(context: Context, name: str, lesson: Lesson, flags: argparse.Namespace) -> Stage:
    """Run a lesson, and show it as the options say; LeftError if its reader leaves."""
    if context.output.json:
        raise UsageError("lessons have no JSON; --svg FILE draws one")
    shown = shown_by(context, name, lesson)
    stage = Stage(flags, shown.show, servers=lesson.servers)
    try:
        stage.run(lesson.run(stage))
    except (ZooKeeperError, ViolationError) as error:
        if isinstance(error.__cause__, LeftError):
            raise error.__cause__ from None
        stage.expect(False, f"no error ends the lesson, but {type(error).__name__}: {error}")
    shown.finish(stage.failures)
    return stage


# fmt: off
ARGUMENTS = (
    arg("name", nargs="?", metavar="NAME", help="the lesson; without it, the list"),
    flag("--all", "all lessons, one after the other"),
    flag("--play", "as a film: do not wait at the questions"),
    flag("--fast", "without pauses for reading"),
    flag("--legend", "what the signs and the numbers mean"),
    flag("--bytes", "the bytes of each frame below it"),
    arg("--svg", metavar="FILE", help="draw the lesson into this file"),
    flag("--source", "the Python of the lesson"),
)
OWN = [Group(f"break it: {name}", tuple(map(arg_of, find(name).flags))) for name in TABLE]
COMMANDS = {"lesson": Command(_lesson, *ARGUMENTS, *OWN, in_shell=False, connects=False)}
