"""The bytes of docs/wire.md and docs/wire-reference.md, each of them named.

wire.md shows a run of zkwire's client and the embedded server on a virtual clock and without a
socket, so it is the same to the byte; wire-reference.md shows what is kept of real servers, which
`tests.support.wire_exchanges` has asked.  Both pages have, written by hand, why a field is there or
what an exchange shows; a new field has the note of ``zkwire spy``.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping
from html import escape

from tests.interop.pages import DOCUMENTS, part
from tests.support.wire_exchanges import (
    EXCHANGES,
    Exchange,
    Frames,
    Release,
    alike,
    message,
    stored,
)
from zkwire import Create, SetData, Watch
from zkwire.cli.lessons.stage import Stage
from zkwire.cli.spy.message import Message, error_name
from zkwire.cli.spy.records import Privacy, rows_of
from zkwire.testing.proxy.frames import Frame

PATH = DOCUMENTS / "wire.md"
REFERENCE = DOCUMENTS / "wire-reference.md"
KINDS = {"connect": "connect", "notification": "event"}
ALL = Privacy("hex", 64, secrets=True)


def groups(digits: str) -> str:
    """Eight together, so that lines break."""
    return " ".join(digits[at : at + 8] for at in range(0, len(digits), 8))


def table(found: Message, last: str, why: Mapping[str, str]) -> list[str]:
    """The lines of a table of the fields; the last column has why a field is there, or the note."""
    lines = [f"| at | bytes | field | value |{last}|", "| ---: | --- | --- | --- | --- |"]
    for at, data, name, value, note in rows_of(found, ALL):
        digits = f"`{groups(data)}`" if data else ""
        lines.append(f"| {at} | {digits} | {name} | {value} | {why.get(name, note)} |")
    return lines


# --- docs/wire.md ---------------------------------------------------------------------------------


async def run(stage: Stage) -> None:
    """What the page shows, in its order."""
    client, other = stage.client("A", session_timeout=6.0), stage.client("B")
    await client.connect()
    await stage.sleep(3.0)
    await client.create("/node", b"hi")
    watch = Watch()
    await client.get_data("/node", watch=watch)
    await other.set_data("/node", b"ho")
    await watch
    await client.multi([Create("/second"), SetData("/node", b"he", version=1)])
    await client.close()
    for name in re.findall(r"<!-- begin: (\w+-(?:c2s|s2c)) -->", PATH.read_text()):
        stage.table([name], stage.frames(client, *name.split("-"))[:1])


def tables() -> dict[str, str]:
    """The table of each frame, by the name of its part."""
    shown, page = dict[str, str](), PATH.read_text()

    def tell(event: object) -> None:
        if rows := getattr(event, "rows", ()):
            (name,), (frame,) = rows
            shown[name] = of_frame(frame, part(page, name))

    stage = Stage(Namespace(), tell)
    stage.run(run(stage))
    return shown


def of_frame(frame: Frame, before: str) -> str:
    """A frame as a table in Markdown; why a field is there says the table before."""
    kind = KINDS.get(frame.kind, "request" if frame.direction == "c2s" else "reply")
    cells = [line.strip("| ").split(" | ") for line in before.splitlines()[2:]]
    why = {cell[2]: cell[-1] for cell in cells if len(cell) == 5}
    found = Message(frame.raw, frame.direction, kind, frame.opcode)
    return "\n".join(table(found, " why ", why)) + "\n"


# --- docs/wire-reference.md -----------------------------------------------------------------------

NAMES = {"request": "Request", "reply": "Reply", "event": "Event"}

INTRODUCTION = """\
# The wire protocol, operation by operation

For each operation: a request and its reply, and the event if one follows, as ZooKeeper {newest}
has answered it. A click shows the frame field by field. Each section says which other releases
answer in the same way; between two runs only zxids, times, session ids and passwords differ.

[Frames, numbers and strings](wire.md) are explained with the first examples. [The file with all
bytes](wire-exchanges.json) is for the tests of other clients. The tests of zkwire run each exchange
again, on a real server and on [zkwire's own](testing.md) in the place of each of these releases.

<!-- Written by python3 -m tests.support.pages -->
"""


def frame_of(name: str, part: str, data: bytes) -> str:
    """One frame: its bytes, and behind a click its fields."""
    if not data:
        return f"{NAMES[part]}: none. The server closes the connection.\n"
    found = message(data, name, part)
    if found.problem is not None:
        raise ValueError(f"{name}: {part}: {found.problem}")
    head = f"{NAMES[part]}, {len(data)} bytes"
    summary = f"<summary>{head}: <code>{escape(groups(data.hex()))}</code></summary>"
    lines = [f"<details>{summary}", "", *table(found, " ", {}), "", "</details>", ""]
    return "\n".join(lines)


def outcome(frames: Frames) -> str:
    """What a release does that does not answer as the newest one."""
    if not frames.reply:
        return "closes the connection"
    code = int.from_bytes(frames.reply[16:20], "big", signed=True)
    if code:
        return f"refuses it with {error_name(code)} ({code})"
    return "answers differently"


def releases(name: str, found: dict[str, Release], newest: str) -> str:
    """A sentence that says which releases answer alike."""
    same, others = [], []
    for release, exchanges in found.items():
        if alike(exchanges[name], found[newest][name], name):
            same.append(release)
        else:
            others.append(f"{release} {outcome(exchanges[name])}")
    return f"The same from {', '.join(same)}. {'. '.join(others)}{'.' if others else ''}".rstrip()


def section(exchange: Exchange, found: dict[str, Release], newest: str, before: str) -> str:
    """One exchange; what is written by hand is in the page before."""
    frames, op = found[newest][exchange.name], exchange.op
    facts = f"Opcode {op.opcode}, servers have it since {op.since}. " if op else ""
    heading = f"## {exchange.name}\n\n"
    by_hand = before.partition(heading)[2].partition("\n")[0].removeprefix(facts.rstrip()).strip()
    parts = [part for part in NAMES if part != "event" or frames.event]
    shown = [frame_of(exchange.name, part, getattr(frames, part)) for part in parts]
    text = f"{heading}{facts}{exchange.about or by_hand}".rstrip()
    return "\n".join([text, "", *shown, releases(exchange.name, found, newest), ""])


def reference() -> str:
    """The whole page."""
    found, before = stored(), REFERENCE.read_text()
    newest = list(found)[-1]
    sections = [section(exchange, found, newest, before) for exchange in EXCHANGES]
    return "\n".join([INTRODUCTION.format(newest=newest), *sections]).rstrip() + "\n"
