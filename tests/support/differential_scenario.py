"""Random steps for the differential test, and the fewest of them that show a difference."""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Callable, Iterable
from itertools import count

from tests.support.differential import (
    TIMEOUT_MS,
    Batch,
    Close,
    Difference,
    Open,
    Player,
    Reattach,
    Step,
)
from tests.support.differential_sides import Side
from tests.support.random_requests import SECRETS, Generator, Request, plain
from zkwire.jute import records as r
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE

SESSIONS = 3
BATCH = 16
SHRINK_SECONDS = 60.0


class Scenario:
    """Some hundred requests below a root of their own.

    At a difference it looks for fewer steps that show one, too, below a root of the same length,
    and raises the Difference that those show.  ``root`` 0 is the scenario's own, the others are
    for such trials.
    """

    def __init__(self, sides: list[Side], known: Callable[[], Iterable[str]], seed: str) -> None:
        self.sides = sides
        self.seed = seed
        self.rng = random.Random(seed)
        self.root = self._root(0)
        self.generator = Generator(self.rng, self.root, known)
        self.player = Player(sides, f"seed {seed!r}")
        self.steps: list[Step] = []

    def _root(self, trial: int) -> str:
        return f"/{zlib.crc32(self.seed.encode()):08x}-{trial:06d}"

    def run(self, requests: int) -> None:
        """Do at least so many requests; leaves no session."""
        try:
            self._run(requests)
        except Difference as difference:
            self.player.end()
            raise self._shrink(difference) from None
        finally:
            self.player.end()

    def _run(self, requests: int) -> None:
        actors = list(range(SESSIONS))
        for actor in actors:
            self._open(actor)
        root = plain(ops.CREATE, r.CreateRequest(self.root, b"", OPEN_ACL_UNSAFE, 0))
        self._play(Batch(actors[0], (root,)))
        while self.player.requests < requests:
            number = self.rng.randrange(SESSIONS)
            chance = self.rng.random()
            if chance < 0.85:
                self._play(Batch(actors[number], self._requests()))
            elif chance < 0.91:
                timeout = self.rng.choice((TIMEOUT_MS, TIMEOUT_MS + 200))
                self._play(Reattach(actors[number], timeout, self.rng.random() < 0.2))
            elif chance < 0.95:
                # In a batch of its own: a real server's answer to it overtakes others.
                packet = r.AuthPacket(0, "digest", self.rng.choice(SECRETS))
                self._play(Batch(actors[number], (plain(ops.AUTH, packet),)))
            else:
                self._play(Close(actors.pop(number)))
                actors.append(max(actors) + 1 if actors else 0)
                self._open(actors[-1])
        for actor in actors:
            self._play(Close(actor))

    def _play(self, step: Step) -> None:
        self.steps.append(step)
        self.player.play(step)

    def _open(self, actor: int) -> None:
        timeout = self.rng.choice((TIMEOUT_MS, TIMEOUT_MS + 1, 10**6))
        self._play(Open(actor, timeout, self.rng.choice((None, False, True))))

    def _requests(self) -> tuple[Request, ...]:
        requests: list[Request] = []
        for _ in range(self.rng.randrange(1, BATCH)):
            requests.append(self.generator.request(self.player.last_zxid))
            if requests[-1].op is ops.SET_ACL:
                break
        return tuple(requests)

    # --- fewer steps --------------------------------------------------------------------------

    def _shrink(self, first: Difference) -> Difference:
        """The Difference of the fewest steps that were found in time."""
        deadline = time.monotonic() + SHRINK_SECONDS
        trials = count(1)
        best, found = self.steps, first

        def still_differs(steps: list[Step]) -> bool:
            nonlocal best, found
            if time.monotonic() > deadline:
                return False
            difference = self._try(steps, next(trials))
            if difference is not None:
                best, found = steps, difference
            return difference is not None

        shrink(self.steps, still_differs)
        # With one request in each batch, single ones can be left out; fewer batches come later.
        apart: list[Step] = []
        for step in best:
            requests = step.requests if isinstance(step, Batch) else ()
            apart += [Batch(step.actor, (q,)) for q in requests] or [step]
        if still_differs(apart):
            shrink(apart, still_differs)
        enough = sum(len(step.requests) for step in best if isinstance(step, Batch))
        found.add_note(f"{len(best)} steps with {enough} requests are enough")
        return found

    def _try(self, steps: list[Step], trial: int) -> Difference | None:
        player = Player(self.sides, f"seed {self.seed!r}, trial {trial}")
        root = self._root(trial)
        try:
            for step in steps:
                player.play(_below(step, self.root, root))
        except Difference as difference:
            return difference
        finally:
            player.end()
        return None


def _below(step: Step, old: str, new: str) -> Step:
    """The same step below another root; both are of one length, so bodies stay readable."""
    if not isinstance(step, Batch):
        return step
    return Batch(step.actor, tuple(request.moved(old, new) for request in step.requests))


def shrink(steps: list[Step], still_differs: Callable[[list[Step]], bool]) -> list[Step]:
    """Leave out what is not needed: halves first, in the end single steps, until none goes."""
    size = max(1, len(steps) // 2)
    while True:
        at, before = 0, len(steps)
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if fewer and still_differs(fewer):
                steps = fewer
            else:
                at += size
        if size == 1 and len(steps) == before:
            return steps
        size = max(1, size // 2)
