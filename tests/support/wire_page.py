"""docs/wire.md's tables of bytes: frames of a run of zkwire's client and the embedded server.

    python3 -m tests.support.wire_page

writes them. The run is on a virtual clock and without a socket, so it is the same to the byte. The
page itself has, written by hand, why a field is there; a new one has the note of ``zkwire spy``.
"""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path

from zkwire import Create, SetData, Watch
from zkwire.cli.lessons.stage import Stage
from zkwire.cli.spy.message import Message
from zkwire.cli.spy.records import Privacy, rows_of
from zkwire.testing.proxy.frames import Frame

PATH = Path(__file__).resolve().parents[2] / "docs" / "wire.md"
KINDS = {"connect": "connect", "notification": "event"}
ALL = Privacy("hex", 64, secrets=True)

_PART = re.compile(r"<!-- begin: (\w+)-(c2s|s2c) -->\n(.*?)<!-- end: \1-\2 -->", re.DOTALL)


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
    for part in _PART.finditer(PATH.read_text()):
        stage.table([part[3]], stage.frames(client, part[1], part[2])[:1])


def tables() -> dict[str, str]:
    """The table of each frame, by the one that stands in the page."""
    shown: dict[str, str] = {}

    def tell(event: object) -> None:
        if rows := getattr(event, "rows", ()):
            (before,), (frame,) = rows
            shown[before] = table(frame, before)

    stage = Stage(Namespace(), tell)
    stage.run(run(stage))
    return shown


def table(frame: Frame, before: str) -> str:
    """A frame as a table in Markdown; why a field is there says the table before."""
    kind = KINDS.get(frame.kind, "request" if frame.direction == "c2s" else "reply")
    message = Message(frame.raw, frame.direction, kind, frame.opcode)
    cells = [line.strip("| ").split(" | ") for line in before.splitlines()[2:]]
    why = {cell[2]: cell[-1] for cell in cells if len(cell) == 5}
    lines = ["| at | bytes | field | value | why |", "| ---: | --- | --- | --- | --- |"]
    for at, data, name, value, note in rows_of(message, ALL):
        groups = " ".join(data[left : left + 8] for left in range(0, len(data), 8))  # lines break
        digits = f"`{groups}`" if data else ""
        lines.append(f"| {at} | {digits} | {name} | {value} | {why.get(name, note)} |")
    return "\n".join(lines) + "\n"


def written(text: str) -> str:
    """The page with the tables of a new run."""
    made = tables()
    return _PART.sub(lambda part: part[0].replace(part[3], made[part[3]]), text)


if __name__ == "__main__":
    PATH.write_text(written(PATH.read_text()))
