"""Lesson 6: one session, two roads."""

from __future__ import annotations

from zkwire import ConnectionLossError
from zkwire.cli.lessons.lesson import Flag, Lesson, name_of
from zkwire.cli.lessons.stage import Stage


async def lesson(stage: Stage) -> None:
    """A session that moves to another server, and a server that is behind."""
    same = stage.flags.same_server
    with stage.quiet("A begins on S1, with an ephemeral node"):
        a = stage.client("A")
        await a.create("/e", ephemeral=True)
    there = "S1" if same else "S2"
    stage.ask(f"B shows A's session id and password to {there}. What does A hear of that?")
    b = stage.client("B", resume=a.credentials, server=there)
    await b.connect()
    await stage.sleep(0.002)
    ended = [event for event in stage.events if event.kind == "end" and event.actor == "A"]
    stage.say(
        f"B has the session, {b.session_id:#x}, and A heard "
        f"{'the end of its connection, and no word why' if ended else 'nothing'}."
    )
    stage.expect(bool(ended) is bool(same), "only the server that B came to ends A's connection")
    stage.expect(b.session_id == a.session_id, "id and password are the session")
    if not same:
        stage.ask("A does not know, and writes on its old road. Is that executed?")
        try:
            await a.set_data("/e", b"late")
        except ConnectionLossError as error:
            stage.say(f"S1 ended the connection. A raised {name_of(error)}: {error}.")
    with stage.quiet("A and B take turns, and close"):
        stat = await b.exists("/e")
        stage.expect(stat and stat.version == 0, "nothing was written on the old road")
        stage.expect(stat and stat.ephemeral_owner == b.session_id, "the ephemeral node stays: it "
                     "belongs to the session, not to a connection")  # fmt: skip
        await a.close()
        await b.close()
        c = stage.client("C", server="S2")
        await c.connect()
    stage.freeze("S1")
    await c.create("/new")
    stage.ask("S1 has not heard of /new yet. C's connection to S2 breaks, and S1 is next in C's "
              "list. Will C see a world without /new?")  # fmt: skip
    await stage.cut(c)
    found = await c.exists("/new")
    greeting = stage.frames(c, "connect", "c2s")[1]
    refused = [e for e in stage.events if e.kind == "end" and (e.actor, e.server) == ("C", "S1")]
    stage.say(
        f"C's greeting names the last zxid that it has seen. S1 is behind that, and ended the "
        f"connection {len(refused)} time without a word: the right answer is the next server."
    )
    stage.expect(refused and len(greeting.body) == 45, "a server that is behind refuses C")
    stage.expect(found, "C sees /new: time moves only forward for a client")


LESSON = Lesson(
    title="one session, two roads",
    cast="A on server S1; B, which knows A's secrets; C; a second server S2",
    run=lesson,
    remember="a session moves silently; time only moves forward.",
    in_code="client.credentials and resume=; no trace and no log of zkwire shows a password.",
    flags=(Flag("--same-server", "B comes to the server that A is connected to"),),
    servers=2,
)
