"""Lesson 8: what a new connection does not know."""

from __future__ import annotations

from zkwire import CREATOR_ALL_ACL, NoAuthError, Watch
from zkwire.cli.lessons.lesson import Flag, Lesson, name_of
from zkwire.cli.lessons.stage import Stage


async def lesson(stage: Stage) -> None:
    """The order of frames on a new connection of an old session."""
    with stage.quiet("A begins, authenticates, and creates a node that is its own"):
        a = stage.client("A", auth=[("digest", b"ann:" + b"secret")])
        await a.create("/private", b"hers", acl=CREATOR_ALL_ACL)
        await a.get_data("/private", watch=Watch())
    stage.ask("The connection breaks, and A reads /private at once. The read waits for the next "
              "connection. What has to leave before it?")  # fmt: skip
    sent = len(stage.frames(a, "", "c2s"))
    await stage.cut(a)
    data, _ = await a.get_data("/private")
    frames = stage.frames(a, "", "c2s")[sent:]
    shown = ", ".join(f"{f.op} (xid {f.xid})" if f.xid else f.op for f in frames)
    stage.say(f"Sent, in this order: {shown}. Credentials and watches belong to a connection, so "
              "each new one is told both, and only then what waits.")  # fmt: skip
    order = [frame.op for frame in frames]
    stage.expect(order == ["connect", "auth", "set_watches", "get_data"], "the credentials first")
    stage.expect(data == b"hers", "the read is allowed")
    if stage.flags.forget:
        stage.ask("B resumes A's session with its id and password, and without the credentials. "
                  "It is the same session: may B read?")  # fmt: skip
        b = stage.client("B", resume=a.credentials)
        await b.connect()
        try:
            await b.get_data("/private")
            stage.expect(False, "B is refused")
        except NoAuthError as error:
            stage.say(f"B raised {name_of(error)}: {error}")
            stage.expect(b.session_id == a.session_id, "the session is the same, and B is refused")


LESSON = Lesson(
    title="what a new connection does not know",
    cast="A, which has credentials and a watch; a server; with --forget also B",
    run=lesson,
    remember="connected is not ready: a connection knows neither you nor your watches.",
    in_code="AsyncClient(auth=[...]); state CONNECTED comes when credentials and watches are back.",
    flags=(Flag("--forget", "a client B resumes the session without its credentials"),),
)
