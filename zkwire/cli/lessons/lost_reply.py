"""Lesson 4: did my create happen?"""

from __future__ import annotations

from typing import Any

from zkwire import AsyncClient, AsyncSequentialLock, BadVersionError, NoNodeError
from zkwire import ConnectionLossError as Loss
from zkwire import OutcomeUnknownError as Unknown
from zkwire.cli.lessons.lesson import Flag, Lesson, name_of
from zkwire.cli.lessons.stage import Stage

ON_THE_WIRE = {
    "create": "create", "sequential-persistent": "create", "set": "set_data", "delete": "delete",
}  # fmt: skip


async def request(client: AsyncClient, op: str) -> object:
    """The request whose answer is lost; 7f3a is an id that no other client has."""
    if op == "set":
        return await client.set_data("/q/n", b"new", version=0)
    if op == "delete":
        await client.delete("/q/n", version=0)
        return None
    return await client.create("/q/7f3a-", ephemeral=op == "create", sequential=True)


async def again(stage: Stage, a: Any, op: str, done: bool) -> None:
    """The same request once more; ``done``: the first one had been executed."""
    stage.ask("And if the request is just sent again, without a look?")
    try:
        await request(a, op)
        mine = [name for name in await stage.children("/q") if name.startswith("7f3a-")]
        if len(mine) == 2:
            stage.say(f"{' and '.join(mine)}: the second would wait in a queue for the first, "
                      "which is its own, for as long as the session lives.")  # fmt: skip
        stage.expect((len(mine) == 2) is done, "repeating is safe only if it had not happened")
    except (BadVersionError, NoNodeError) as refusal:
        stage.say(f"{name_of(refusal)}: that does not prove that another client was there. "
                  "It was this client's own first request.")  # fmt: skip
        stage.expect(done, "repeating is refused only if it had happened")


async def fair_lock(stage: Stage, a: Any) -> None:
    """What a lock does about it."""
    stage.ask("zkwire's fair lock meets the same fault. How many nodes will it have?")
    await stage.cut(a, after="create2")
    lock = AsyncSequentialLock(a, "/lock")
    await lock.acquire(timeout=30)
    (node,) = nodes if len(nodes := await stage.children("/lock")) == 1 else [""]
    stage.say(f"Nodes: {len(nodes)}. Its name begins with ids, {node[:-16]}, and the lock "
              "looked for them before it did anything else.")  # fmt: skip
    sent = len(stage.frames(a, "create2", "c2s"))
    stage.expect(sent == 1 and node and lock.held, "one create, one node, and it is held")


async def lesson(stage: Stage) -> None:
    """One request whose answer is lost, and what to do next."""
    op, before = stage.flags.op, stage.flags.before
    moment = "before" if before else "lost" if stage.flags.lost else "after"
    with stage.quiet("A begins"):
        a = stage.client("A")
        await a.create("/q")
        await a.create("/q/n", b"old")
        await a.create("/lock")
    when = {"before": "before A's request is sent", "lost": "while A's request is on its way",
            "after": "after the server has executed A's request"}[moment]  # fmt: skip
    stage.ask(f"The connection breaks {when} ({op}). What can A know about it?")
    await stage.cut(a, **{moment: ON_THE_WIRE[op]})
    try:
        await request(a, op)
    except Loss as error:
        stage.say(f"A raised {name_of(error)}: {error}")
        stage.expect(isinstance(error, Unknown) is not before, "the error says whether it was sent")
    if stage.flags.expire:
        await stage.expire(a)
        a = stage.client("B")

    stage.ask("What does a look at the server show?")
    names = await a.get_children("/q")
    found = [name for name in names if name.startswith("7f3a-")]
    data, stat = await a.get_data("/q/n") if "n" in names else (b"", None)
    state = f"{data!r}, version {stat.version}" if stat else "gone"
    stage.say(f"With the id in their names: {', '.join(found) or 'no nodes'}; /q/n: {state}.")
    done = bool(found) or data != b"old"
    gone = stage.flags.expire and op == "create"  # an ephemeral node, with its session
    stage.expect(
        done is (moment == "after" and not gone), "the look tells what the error could not"
    )

    await again(stage, a, op, done)
    if op == "create":
        await fair_lock(stage, a)


LESSON = Lesson(
    title="did my create happen?",
    cast="A and a server; with --expire also B, which comes after A",
    run=lesson,
    remember='"connection loss" is no error of the operation: it is the absence of an answer.',
    in_code="NotSentError and OutcomeUnknownError; docs/connection-loss.md has each operation.",
    flags=(
        Flag("--op", "the request (create)", None, "create", tuple(ON_THE_WIRE)),
        Flag("--before", "the connection breaks before the request is sent"),
        Flag("--lost", "the connection breaks while the request is on its way"),
        Flag("--expire", "the session expires as well"),
    ),
)
