"""Lesson 7: why a lock needs a fence."""

from __future__ import annotations

from dataclasses import dataclass

from zkwire import AsyncSequentialLock, LockLostError, SetData
from zkwire.cli.command import duration
from zkwire.cli.lessons.lesson import Flag, Lesson, name_of
from zkwire.cli.lessons.stage import Stage


@dataclass
class Storage:
    """What the lock protects; with ``fences`` it refuses a fence below the largest one."""

    fences: bool
    largest: int = 0
    text: str = ""

    def write(self, text: str, fence: int) -> bool:
        if self.fences and fence < self.largest:
            return False
        self.largest, self.text = max(self.largest, fence), text
        return True


async def write(
    stage: Stage, name: str, lock: AsyncSequentialLock, storage: Storage
) -> tuple[bool, bool]:
    """A process: acquire, prepare, write; whether that was taken, and the lock held just then."""
    await lock.acquire()
    if stage.flags.check_first:
        stage.say(f"{name} asks whether it holds the lock: {lock.held}.")
    await stage.sleep(0.5)  # between the look at the lock and the write, anything can happen
    done, held = storage.write(f"{name}'s", lock.fence), lock.held
    does = "takes" if done else "refuses"
    stage.note(name, f"writes with {lock.fence:#x}: the storage {does} it", well=done is held)
    stage.say(f"At {stage.now:.3f} s, behind the write, {name} asks: held is {held}.")
    return done, held


async def lesson(stage: Stage) -> None:
    """A holder that stands still while its session expires, and writes when it wakes up."""
    pause, timeout = stage.flags.pause, 4.0
    storage = Storage(fences=not stage.flags.no_fence)
    with stage.quiet("A and B begin"):
        a, b = (stage.client(name, session_timeout=timeout) for name in "AB")
        await a.create("/lock")
        await a.create("/report")
        await b.connect()
    locks = [AsyncSequentialLock(client, "/lock") for client in (a, b)]
    for client, lock in zip((a, b), locks, strict=True):
        stage.follow(client, lock)
    first = stage.start(a, write(stage, "A", locks[0], storage))
    await stage.sleep(0.1)
    stage.ask(f"A holds the lock and prepares its write. Then A's process stops for {pause:g} s: "
              "SIGSTOP, garbage collection, a closed lid. B waits. Who may write?")  # fmt: skip
    stage.pause(a, pause)
    second = stage.start(b, write(stage, "B", locks[1], storage))
    done, held = await first
    if pause < timeout - 0.5:
        stage.expect(done and held, "a pause shorter than the timeout changes nothing")
        await locks[0].release()
        await second
        return
    stage.expect(not held, "A's lock is known as lost as soon as A asks")
    stage.expect((await second) == (True, True), "B has written, with the lock in its hand")
    stage.expect(locks[0].fence < locks[1].fence, "B's fence is larger than A's")
    if storage.fences:
        stage.expect(storage.text == "B's" and not done, "the storage refuses A: B's text stays")
    else:
        stage.expect(storage.text == "A's" and done, "without fences, B's text is overwritten")
    stage.ask("The report is a node itself. Does it need a memory for fences?")
    try:
        await locks[0].guard([SetData("/report", b"A's")])
    except LockLostError as error:
        stage.say(f"A raised {name_of(error)}: {error}")
    await locks[1].guard([SetData("/report", b"B's")])
    stage.expect((await b.get_data("/report")).data == b"B's", "a guarded write is the holder's")


LESSON = Lesson(
    title="why a lock needs a fence",
    cast="A, which holds a lock; B, which waits for it; a server; a storage without a clock",
    run=lesson,
    remember="a lock says which process should write; only the resource can say which one may.",
    in_code="lock.fence for the storage; lock.guard([...]) lets the server check it for nodes.",
    flags=(
        Flag("--no-fence", "the storage does not look at fences"),
        Flag("--pause", "how long A stops (7s)", duration, 7.0),
        Flag("--check-first", "A asks whether it holds the lock, right before the pause"),
    ),
)
