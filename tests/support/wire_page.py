"""docs/wire.md's tables of bytes: frames of a run of zkwire's client and the embedded server.

    python3 -m tests.support.wire_page

writes them. The run is on a virtual clock and without a socket, so it is the same to the byte.
"""

from __future__ import annotations

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

HEADER = {
    "length": "of what follows, in bytes; more than `jute.maxbuffer` ends the connection",
    "xid": "the client numbers its requests; the reply has the same number",
}
REPLY = {
    "length": "of what follows, in bytes",
    "xid": "that of the request: replies come in the order of the requests",
    "zxid": "the newest change that the server has seen; the next handshake repeats it",
    "err": "0: done; else a negative code, and no body",
}
WHY = {
    "connect c2s": {
        "length": "of what follows, in bytes; the first frame has no xid and no type",
        "protocol_version": "there is no other",
        "last_zxid_seen": "0: a new client; a server that has seen less closes the connection",
        "time_out": "the session timeout that the client asks for",
        "session_id": "0: a new session; else the one to go on with",
        "passwd": "of the session; 16 zeros for a new one",
        "read_only": "whether a server without a quorum will do; may be left out",
    },
    "connect s2c": {
        "length": "of what follows, in bytes",
        "protocol_version": "there is no other",
        "time_out": "what the server grants, 2 to 20 of its ticks; 0: the session is gone",
        "session_id": "the client repeats it, with the password, on each later connection",
        "passwd": "a program that knows both can take over the session",
        "read_only": "whether this server has no quorum; left out if the request had none",
    },
    "ping c2s": {
        "length": "of what follows, in bytes",
        "xid": "-2 is for pings",
        "type": "11; it has no body: 8 bytes keep the session alive",
    },
    "ping s2c": {**REPLY, "xid": "-2, as the ping"},
    "create c2s": {
        **HEADER,
        "type": "create",
        "length of path": "in bytes of UTF-8",
        "length of data": "-1 is no data, which is not the same as 0",
        "count of acl": "an empty list is refused",
        "acl[0].perms": "31: read, write, create, delete, admin",
        "flags": "0: persistent; 1 ephemeral, 2 sequential, 3 both",
    },
    "create s2c": {
        **REPLY,
        "zxid": "of this change",
        "path": "with the number, if the node is sequential",
    },
    "get_data c2s": {**HEADER, "watch": "the next change is to be told, once"},
    "notification s2c": {
        "length": "of what follows, in bytes",
        "xid": "-1 is for events: no request has asked for this frame",
        "zxid": "-1 before 3.9: then an event does not say which change it is about",
        "type": "what has happened; what the node is like now the client has to read",
        "state": "3: connected; it says nothing about the node",
        "path": "in full, also for a client with a chroot",
    },
    "multi c2s": {
        **HEADER,
        "type": "multi: all of it or nothing",
        "[0].type": "the first operation, as its own request would have it",
        "[0].done": "false: an operation follows",
        "[0].err": "has no meaning in a request",
        "[1].version": "the version that the node must have, or nothing of the multi is done",
        "[2].done": "true: the end",
    },
    "multi s2c": {
        **REPLY,
        "zxid": "one change for all of it",
        "err": "0, also when the multi is refused: then the results say so",
        "[0].type": "a result of a create; -1 is an error",
        "[2].done": "true: the end",
    },
    "close_session c2s": {
        "length": "of what follows, in bytes",
        "xid": "as for any request",
        "type": "-11; the server deletes the ephemeral nodes",
    },
    "close_session s2c": {**REPLY, "zxid": "a new one: the end of a session is a change"},
}
"""Why each field is there, by frame; where nothing is said the note of ``zkwire spy`` stands."""


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
    for name in WHY:
        op, direction = name.split()
        stage.table([name], stage.frames(client, op, direction)[:1])


def tables() -> dict[str, str]:
    """The table of each frame, by its name."""
    shown: dict[str, str] = {}

    def tell(event: object) -> None:
        rows = getattr(event, "rows", ())
        if rows:
            (name,), (frame,) = rows
            shown[name.replace(" ", "-")] = table(frame, WHY[name])

    stage = Stage(Namespace(), tell)
    stage.run(run(stage))
    return shown


def table(frame: Frame, why: dict[str, str]) -> str:
    """A frame as a table in Markdown."""
    kind = KINDS.get(frame.kind, "request" if frame.direction == "c2s" else "reply")
    message = Message(frame.raw, frame.direction, kind, frame.opcode)
    rows = rows_of(message, ALL)
    if unused := why.keys() - {name for _, _, name, _, _ in rows}:
        raise ValueError(f"{frame.op} {frame.direction} has no {', '.join(sorted(unused))}")
    lines = ["| at | bytes | field | value | why |", "| ---: | --- | --- | --- | --- |"]
    for at, data, name, value, note in rows:
        groups = " ".join(
            data[left : left + 8] for left in range(0, len(data), 8)
        )  # so that lines break
        digits = f"`{groups}`" if data else ""
        lines.append(f"| {at} | {digits} | {name} | {value} | {why.get(name, note)} |")
    return "\n".join(lines)


def written(text: str) -> str:
    """The page with the tables of a new run."""
    for name, content in tables().items():
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"{PATH.name} has no place for {name}")
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{content}\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    PATH.write_text(written(PATH.read_text()))
