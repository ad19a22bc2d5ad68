"""Lesson 5: why each waiter watches only the one in front."""

from __future__ import annotations

from dataclasses import dataclass

from zkwire import AsyncClient, AsyncSequentialLock, Watch
from zkwire.cli.lessons.lesson import Flag, Lesson
from zkwire.cli.lessons.stage import Stage


@dataclass
class Queue:
    """A lock of one's own making, with a ``mistake``: ``herd``, ``naive`` or none."""

    client: AsyncClient
    path: str
    mistake: str = "herd"
    held: bool = False
    node: str = ""

    async def acquire(self) -> None:
        self.node = await self.client.create(f"{self.path}/n-", ephemeral=True, sequential=True)
        own, herd = self.node.rpartition("/")[2], self.mistake == "herd"
        while not self.held:
            watch = Watch()
            names = await self.client.get_children(self.path, watch=watch if herd else None)
            before = [name for name in names if name < own]
            if before and not herd:
                await self.client.exists(f"{self.path}/{max(before)}", watch=watch)
            self.held = not before or (await watch is not None and self.mistake == "naive")

    async def release(self) -> None:
        await self.client.delete(self.node)


async def drain(stage: Stage, path: str, number: int, herd: bool) -> tuple[int, int, int]:
    """So many hold once, one by one: bytes, frames and wake-ups from the first release on."""
    clients = [stage.client(f"{path}/{n}") for n in range(number)]
    await clients[0].create(path)
    locks = [Queue(c, path) if herd else AsyncSequentialLock(c, path) for c in clients]
    for lock, client in zip(locks, clients, strict=True):
        stage.start(client, lock.acquire())
        await stage.settle()
    begin, woken = stage.now, 0
    for lock, client in zip(locks, clients, strict=True):
        woken += sum(event.time >= begin for event in stage.frames(client, "notification"))
        await lock.release()
        await stage.settle()
    sizes = [len(frame.raw) for frame in stage.traffic(begin)]
    for client in clients:
        await client.close()
    return sum(sizes), len(sizes), woken


async def lesson(stage: Stage) -> None:
    """Wake-ups of two queues, and a waiter in the middle that dies."""
    naive, most = bool(stage.flags.naive), stage.flags.waiters
    stage.ask(f"{most} contenders hold a lock once each. All watch the list, or each watches the "
              "one in front. How many times does a waiter wake up?")  # fmt: skip
    rows: list[tuple[object, ...]] = [("contenders", "watch", "bytes", "frames", "wake-ups")]
    for number in (numbers := [2**n for n in range(1, most.bit_length())]):
        with stage.quiet(f"{number} contenders, twice"):
            herd = await drain(stage, f"/herd{number}", number, True)
            line = await drain(stage, f"/line{number}", number, False)
        rows += [(number, "the list", *herd), ("", "one in front", *line)]
    stage.table(*rows)
    herds, lines = [row[-1] for row in rows[1::2]], [row[-1] for row in rows[2::2]]
    stage.expect(herds == [n * (n - 1) // 2 for n in numbers], "all watch: N(N-1)/2 wake-ups")
    stage.expect(lines == [n - 1 for n in numbers], "each watches the one in front: N-1")
    with stage.quiet("A holds, B waits for A, C for B"):
        a, b, c = (stage.client(name) for name in "ABC")
        await a.create("/q")
        locks = [Queue(client, "/q", "naive" * naive) for client in (a, b, c)]
        for lock in locks:
            stage.start(a, lock.acquire())
            await stage.settle()
    stage.ask("B's session expires. Its node is gone, and C wakes up. Is it C's turn?")
    await stage.expire(b)
    await stage.settle()
    held = [name for name, lock in zip("ABC", locks, strict=True) if lock.held]
    why = "C took the event for its turn" if naive else "C has looked again, and found A in front"
    stage.expect(held == ["A", "C"][: 1 + naive], f"held by {' and '.join(held)}: {why}")


LESSON = Lesson(
    title="why each waiter watches only the one in front",
    cast="a server, and contenders for a lock: at last A, B and C",
    run=lesson,
    remember="wake one, and let the woken one check.",
    in_code="AsyncSequentialLock and SequentialLock; BlockingLock has a herd, and says so.",
    flags=(
        Flag("--waiters", "the most contenders (32)", int, 32),
        Flag("--naive", "a waiter that is woken does not look again"),
    ),
)
