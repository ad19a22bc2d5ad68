"""A lesson as JSON: an object for its beginning, for each event, and for its end.

An event has ``lesson``, ``t`` (seconds since the beginning) and ``event`` (the kinds of
:mod:`zkwire.cli.lessons.event`), and what there is of ``client``, ``server``, ``text``, ``detail``,
``passed`` and ``rows``; a frame has ``dir``, ``op``, ``xid``, ``zxid``, ``error``, ``path``,
``bytes``, its size with the length in front, and, if that is wanted, ``rows``, its byte table, in
which passwords are hidden.
"""

from __future__ import annotations

from zkwire.cli.lessons.event import EXPECT, TABLE, Event
from zkwire.cli.lessons.words import error_name
from zkwire.cli.output import hex_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from zkwire.cli.lessons.lesson import Lesson
    from zkwire.cli.output import Output
    from zkwire.testing.proxy.frames import Frame


class Objects:
    """Writes an object for each event."""

    def __init__(self, output: Output, name: str, lesson: Lesson, *, tables: bool) -> None:
        self._output = output
        self._tables = tables
        self._name = name
        output.record({"lesson": name, "title": lesson.title, "cast": lesson.cast})
        self._lesson = lesson

    def show(self, event: Event) -> None:
        """Write an event."""
        fields: dict[str, Any] = {"lesson": self._name, "t": round(event.time, 6)}
        fields["event"] = event.kind
        given = {"client": event.actor, "server": event.server, "text": event.text}
        fields |= {name: value for name, value in given.items() if value}
        if event.frame is not None:
            fields |= _frame(event.frame)
            if self._tables:
                from zkwire.cli.lessons.picture import byte_table

                fields["rows"] = byte_table(event.frame)
        elif event.detail:
            fields["detail"] = event.detail
        if event.kind == EXPECT:
            fields["passed"] = event.passed
        if event.kind == TABLE:
            fields["rows"] = event.rows
        self._output.record(fields)

    def finish(self, failures: list[str]) -> None:
        """Write the end."""
        remember = {"remember": self._lesson.remember, "in_code": self._lesson.in_code}
        self._output.record({"lesson": self._name, **remember, "failures": failures})


def _frame(frame: Frame) -> dict[str, Any]:
    fields: dict[str, Any] = {"dir": frame.direction, "op": frame.op}
    if frame.xid is not None:
        fields["xid"] = frame.xid
    if frame.path is not None:
        fields["path"] = frame.path
    if frame.zxid is not None and frame.zxid > 0:
        fields["zxid"] = hex_id(frame.zxid)
    if frame.error:
        fields["error"] = error_name(frame.error)
    return fields | {"bytes": len(frame.raw)}
