"""Lesson 1: what a session is made of."""

from __future__ import annotations

from zkwire import Credentials, SessionExpiredError
from zkwire.cli.command import duration
from zkwire.cli.lessons.lesson import Flag, Lesson
from zkwire.cli.lessons.stage import Stage
from zkwire.jute.records import ConnectRequest, ConnectResponse


async def lesson(stage: Stage) -> None:
    """One session, from the first frame to the last."""
    wanted, tick = stage.flags.want, stage.tick
    stage.ask(f"A asks for a session timeout of {wanted:g} s. Who decides what it gets?")
    a = stage.client("A", session_timeout=wanted)
    await a.connect()
    request, answer = stage.frames(a, "connect")
    asked, granted = ConnectRequest.unpack(request.body)[0], ConnectResponse.unpack(answer.body)[0]
    stage.say(
        f"The first frame has no xid and no type: its place makes it a ConnectRequest. Its "
        f"{len(request.body)} bytes ask for {asked.time_out} ms and name session "
        f"{asked.session_id}, a new one. The answer has {len(answer.body)} bytes: "
        f"{granted.time_out} ms, an id, and a password of {len(granted.passwd or b'')} bytes "
        f"that is shown nowhere: with both, anyone can take the session over."
    )
    fair = min(max(wanted, 2 * tick), 20 * tick)
    stage.expect(granted.time_out == round(fair * 1000), "the server decides: 2 to 20 ticks")
    stage.expect(a.session_timeout == fair, f"the client goes by what was granted: {fair:g} s")

    stage.ask("A asks for nothing now. Does anything travel?")
    await stage.sleep(fair)
    ping, pong = stage.frames(a, "ping")[:2]
    stage.say(
        f"Pings, one after each third of the timeout without a request: {len(ping.body)} bytes, "
        f"xid {ping.xid} and type {ping.opcode}. The answer has {len(pong.body)}: it says the "
        f"newest zxid, {pong.zxid:#x}, so even an idle client learns how far the server is."
    )
    stage.expect(ping.time <= fair / 3 + 0.1, f"the first ping leaves within {fair / 3:.2f} s")

    if stage.flags.wrong_password:
        stage.ask("B knows A's session id and guesses the password. What does the server say?")
        b = stage.client("B", resume=Credentials(a.session_id, b"x" * 16))
        try:
            await b.connect()
        except SessionExpiredError as error:
            stage.say(f"B raised SessionExpiredError: {error}")
        refusal = ConnectResponse.unpack(stage.frames(b, "connect")[1].body)[0]
        stage.expect(refusal.session_id == refusal.time_out == 0, "the answer is all zeros, as for "
                     "a session that has expired")  # fmt: skip
        stage.say("The guess has ended A's connection all the same: the server made room for a "
                  "client that names A's session before it compared the passwords.")  # fmt: skip
    stage.ask("A closes. Is that an end of the connection, or more?")
    await a.close()
    end = stage.frames(a, "close_session")[-1]
    stage.say(f"A request like others, type {end.opcode}, and its answer has a new zxid, "
              f"{end.zxid:#x}: the end of a session is a write.")  # fmt: skip
    stage.expect((end.zxid or 0) > (pong.zxid or 0), "closing is a write")


def _timeout(text: str) -> float:
    """A session timeout in which the network can carry an answer."""
    return max(duration(text), 0.01)


LESSON = Lesson(
    title="what a session is made of",
    cast="a client A, a server, and with --wrong-password a client B",
    run=lesson,
    remember="a session is an id, a password and a deadline; the TCP connection is only its "
    "current road.",
    in_code="client.session_timeout is the timeout that was granted, client.session_id the id.",
    flags=(
        Flag("--want", "the session timeout that A asks for (4s)", _timeout, 4.0),
        Flag("--wrong-password", "a client B guesses the password of A's session"),
    ),
)
