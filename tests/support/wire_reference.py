"""docs/wire-reference.md: each frame of docs/wire-exchanges.json, with each of its bytes named.

    python3 -m tests.support.wire_reference

writes it. No server is needed: tests.support.wire_exchanges has asked them. The page itself has,
written by hand, what an exchange shows.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from tests.support.wire_exchanges import (
    EXCHANGES,
    Exchange,
    Frames,
    Release,
    alike,
    message,
    stored,
)
from zkwire.cli.spy.message import error_name
from zkwire.cli.spy.records import Privacy, rows_of

PATH = Path(__file__).resolve().parents[2] / "docs" / "wire-reference.md"
ALL = Privacy("hex", 64, secrets=True)
NAMES = {"request": "Request", "reply": "Reply", "event": "Event"}

INTRODUCTION = """\
# The wire protocol, operation by operation

For each operation: a request and its reply, and the event if one follows, as ZooKeeper {newest}
has answered it. A click shows the frame field by field. Each section says which other releases
answer in the same way; between two runs only zxids, times, session ids and passwords differ.

[Frames, numbers and strings](wire.md) are explained with the first examples. [The file with all
bytes](wire-exchanges.json) is for the tests of other clients. The tests of zkwire run each exchange
again, on a real server and on [zkwire's own](testing.md) in the place of each of these releases.

<!-- Written by python3 -m tests.support.wire_reference -->
"""


def groups(data: bytes) -> str:
    """Digits, eight together, so that lines break."""
    digits = data.hex()
    return " ".join(digits[at : at + 8] for at in range(0, len(digits), 8))


def frame_of(name: str, part: str, data: bytes) -> str:
    """One frame: its bytes, and behind a click its fields."""
    if not data:
        return f"{NAMES[part]}: none. The server closes the connection.\n"
    found = message(data, name, part)
    if found.problem is not None:
        raise ValueError(f"{name}: {part}: {found.problem}")
    head = f"{NAMES[part]}, {len(data)} bytes"
    lines = [
        f"<details><summary>{head}: <code>{escape(groups(data))}</code></summary>",
        "",
        "| at | bytes | field | value | |",
        "| ---: | --- | --- | --- | --- |",
    ]
    for at, digits, field, value, note in rows_of(found, ALL):
        shown = f"`{groups(bytes.fromhex(digits))}`" if digits else ""
        lines.append(f"| {at} | {shown} | {field} | {value} | {note} |")
    return "\n".join([*lines, "", "</details>", ""])


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


def page() -> str:
    """The whole page."""
    found, before = stored(), PATH.read_text()
    newest = list(found)[-1]
    sections = [section(exchange, found, newest, before) for exchange in EXCHANGES]
    return "\n".join([INTRODUCTION.format(newest=newest), *sections]).rstrip() + "\n"


if __name__ == "__main__":
    PATH.write_text(page())
