"""``zkwire demo``: what the locks do when things go wrong, shown and checked.

It is played as a lesson is, on a virtual clock.  The exit status is 0 only if all checks
have passed.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from zkwire import AsyncBlockingLock, AsyncNonBlockingLock, AsyncSequentialLock, State
from zkwire.cli.command import Command
from zkwire.cli.context import Context
from zkwire.cli.lessons.command import play
from zkwire.cli.lessons.lesson import Lesson
from zkwire.cli.lessons.stage import Stage
from zkwire.cli.output import DONE, REFUSED

WRITERS, LINES, PIECES = 4, 4, 6
KINDS: tuple[type[Any], ...] = (AsyncNonBlockingLock, AsyncBlockingLock, AsyncSequentialLock)
LOCKS = {kind.__name__.removeprefix("Async"): kind for kind in KINDS}


async def demo(stage: Stage) -> None:
    """All three scenes."""
    stage.ask(
        f"1. Many clients, one file: {WRITERS} clients write {LINES} lines each, every line in "
        f"{PIECES} pieces, without a lock and then with each of three. What becomes of the lines?"
    )
    for name in ("none", *LOCKS):
        await writers(stage, name)
    await lost_create(stage)
    await silent_holder(stage)
    left = [*await stage.children("/cut"), *await stage.children("/silent")]
    stage.expect(left == [], "no node of a lock is left")


async def writers(stage: Stage, name: str) -> None:
    """Several clients write at the same time; a line begins with the fence of the lock."""
    pieces: list[str] = []

    async def write(lock: Any, own: str) -> None:
        for _ in range(LINES):
            while lock is not None and not await lock.acquire():
                await stage.sleep(0.002)  # a non-blocking lock does not wait
            for piece in (str(lock.fence if lock else 0), *[own] * PIECES, ".\n"):
                pieces.append(piece)
                await stage.sleep(0.002)  # as a program that needs several system calls
            if lock is not None:
                await lock.release()

    with stage.quiet(f"{WRITERS} writers, {name}"):
        clients = [stage.client(f"{name}/{number}") for number in range(WRITERS)]
        locks = [LOCKS[name](client, f"/{name}") if name in LOCKS else None for client in clients]
        pairs = enumerate(zip(clients, locks, strict=True))
        for each in [stage.start(one, write(lock, f"writer-{n}")) for n, (one, lock) in pairs]:
            await each
    lines = [line.split() for line in " ".join(pieces).splitlines()]
    whole = [line for line in lines if len(line) == PIECES + 2 and len({*line[1:-1]}) == 1]
    if name == "none":
        stage.expect(len(whole) < WRITERS * LINES, "without a lock the lines are mixed up")
        return
    fences = [int(line[0]) for line in whole]
    stage.expect(
        len(whole) == len(lines) == WRITERS * LINES and fences == sorted({*fences}),
        f"{name}: {len(whole)} of {WRITERS * LINES} lines are whole, and each fence is higher "
        "than the one before",
    )


async def lost_create(stage: Stage) -> None:
    """The connection is cut after the server has created the node and before its answer."""
    stage.ask("2. The server creates the lock's node, and the connection breaks before its answer "
              "arrives. Does the client create a second one, and wait for the first?")  # fmt: skip
    with stage.quiet("A has the lock, and releases it"):
        a = stage.client("A")
        lock = AsyncSequentialLock(a, "/cut")
        await lock.acquire()
        await lock.release()
    session, before = a.session_id, len(stage.frames(a, "", "c2s"))
    await stage.cut(a, after="create2")
    acquired = await lock.acquire(timeout=10.0)
    asked = [frame.op for frame in stage.frames(a, "", "c2s")[before:]]
    nodes = await stage.children("/cut")
    stage.expect(
        acquired and asked.count("create2") == 1 and "sync" in asked,
        "the lock has looked for its node, and has not created another",
    )
    stage.expect(len(nodes) == 1 and lock.held, "there is one node, and the lock is held")
    stage.expect(a.session_id == session, "the session is still the same")
    await lock.release()


async def silent_holder(stage: Stage) -> None:
    """A holder hears nothing for longer than its session lives, and then goes on."""
    timeout = 2 * stage.tick
    with stage.quiet("B holds a lock"):
        b, c = (stage.client(name, session_timeout=timeout) for name in "BC")
        locks = [AsyncSequentialLock(client, "/silent") for client in (b, c)]
        await locks[0].acquire()
        await c.connect()
    stage.ask(f"3. B's network is silent for longer than its session, {timeout:g} s, and C waits "
              "for the lock. Then B goes on. Does it still believe that it holds?")  # fmt: skip
    stage.silence(b, 2 * timeout)
    with stage.quiet("C waits, and holds"):
        await locks[1].acquire()
    old, new = locks[0].fence, locks[1].fence
    stage.expect(new > old, f"C holds the lock, and its fence {new} is higher than B's, {old}")
    stage.expect(not locks[0].held, "B knows without a word from the server: held is False")
    stage.expect(
        locks[0].fence < new,
        f"a store that has seen the fence {new} can refuse a late write with the fence {old}",
    )
    with stage.quiet("B hears of it; C releases"):
        await b.wait_for_state(State.EXPIRED)
        await locks[1].release()


DEMO = Lesson(
    title="what the locks do when things go wrong",
    cast="a server, clients that write, and A, B and C",
    run=demo,
    remember="a lock says which client should write; its fence lets a store say which one may.",
    in_code="with SequentialLock(client, path) as lock: lock.fence, lock.held.",
)


def _demo(context: Context, asked: Namespace) -> int:
    """
    zkwire demo           # on an in-memory server of its own
    zkwire demo --color never > demo.txt

    It checks all that it shows.
    """
    vars(asked).update(bytes=False, fast=True)
    stage = play(context, "demo", DEMO, Namespace())
    passed = stage.checks - len(stage.failures)
    context.output.text(f"\n   {passed} of {stage.checks} checks passed.")
    return REFUSED if stage.failures else DONE


COMMANDS = {"demo": Command(_demo, in_shell=False, connects=False)}
