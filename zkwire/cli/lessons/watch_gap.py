"""Lesson 3: a watch is one doorbell, not a diary."""

from __future__ import annotations

from typing import Any

from zkwire import EventType, Watch
from zkwire.cli.lessons.lesson import Flag, Lesson
from zkwire.cli.lessons.stage import Stage


async def lesson(stage: Stage) -> None:
    """What a watch tells, and what it does not."""
    writes = stage.flags.writes
    with stage.quiet("two clients begin"):
        w, o = stage.client("W"), stage.client("O")
        await w.connect()
        await o.create("/g", b"v0")
    watch = Watch()
    data, stat = await w.get_data("/g", watch=watch)
    stage.ask(f"O writes {writes} times at once. How many events does W get, and what will it "
              f"read?")  # fmt: skip
    for reply in [o.set_data("/g", b"v%d" % number) for number in range(1, writes + 1)]:
        await reply
    await watch
    count = len(stage.frames(w, "notification"))
    data, now = await w.get_data("/g", watch=watch)
    stage.say(f"{count} event, and {data!r}: the version went from {stat.version} to "
              f"{now.version}, the only trace of what W has never seen.")  # fmt: skip
    stage.expect(count == 1, "a watch set by a read fires once")
    stage.expect(data == b"v%d" % writes, "the read after the event has the newest value")
    await away(stage, w, o)


async def away(stage: Stage, w: Any, o: Any) -> None:
    """What is told of changes during an outage."""
    watches = {path: Watch() for path in ("/g", "/again", "/brief")}
    await o.create("/again")
    for path, watch in watches.items():
        await w.exists(path, watch=watch)
    lasting = Watch()
    if stage.flags.recursive:
        await w.add_watch("/wide", lasting, recursive=True)
    stage.ask("W's connection breaks. While W is away, /g is written, /again is deleted and "
              "created anew, /brief is created and deleted. What is W told?")  # fmt: skip
    stage.silence(w, 1.0)
    await stage.cut(w)
    await o.set_data("/g", b"away")
    await o.create("/wide")
    await o.delete("/again")
    await o.create("/again")
    await o.create("/brief")
    await o.delete("/brief")
    await stage.sleep(2.0)
    got = {path: watch.take() for path, watch in watches.items()}
    told = [f"{path} {event.type if event else 'nothing'}" for path, event in got.items()]
    stage.say(f"W was told: {', '.join(told)}.")
    stage.expect(got["/g"], "a change while W is away is told on the next connection")
    anew = got["/again"]
    stage.expect(anew and anew.type is EventType.NODE_DATA_CHANGED,
                 "a node that was created anew counts as changed, not as deleted")  # fmt: skip
    stage.expect(got["/brief"] is None, "a node that came and went leaves no trace")
    if stage.flags.recursive:
        missed = lasting.take()
        stage.say(f"The persistent watch got {missed.type if missed else 'nothing'}, from the "
                  f"client: the server replays nothing for such watches.")  # fmt: skip
        stage.expect(missed and missed.type is EventType.REREAD, "the client says: read again")


LESSON = Lesson(
    title="a watch is one doorbell, not a diary",
    cast="W, which watches; O, which writes; a server",
    run=lesson,
    remember="after any event or reconnect, read again: the read is the truth, the event a hint.",
    in_code="client.watch_data(path) reads again after each event and each lost connection.",
    flags=(
        Flag("--recursive", "W has a persistent recursive watch as well"),
        Flag("--writes", "how often O writes (3)", int, 3),
    ),
)
