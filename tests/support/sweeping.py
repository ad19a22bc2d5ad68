"""Every fault at every request of a call, and pairs of cuts: found by enumeration.

What a test says is one life: what is called, and what must be true behind it. It is lived once
without a fault, to count its requests, and then once for each fault at each of them: `cuts` are
those before the server gets the request, behind that, and in and behind the reply; and a share of
the pairs of cuts, the one that `ZKWIRE_SEED` says, of which the second hits one of the next three
requests or the greeting of the next connection. With `ZKWIRE_PAIRS=all` each pair has its run, and
the second cut hits each later request, to the third behind what a life without a fault has sent.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.conftest import SEED
from zkwire.testing.proxy import Action, FaultProxy, Frame, cut_after, cut_before, truncate
from zkwire.testing.proxy.faults import Step

AT_ONCE = 12  # they spend their time waiting for each other's sockets
NEAR = 3
ALL_PAIRS = os.environ.get("ZKWIRE_PAIRS") == "all"


class Fault(NamedTuple):
    """What happens to a request, to its ``reply``, or to the next ``greeting``; how much later."""

    action: Action
    reply: bool = False
    greeting: bool = False
    later: int = 0


Faults = tuple[Fault, ...]
CUTS = {"cut before": Fault(cut_before), "cut after": Fault(cut_after)}
SINGLES = CUTS | {
    "cut behind the reply": Fault(cut_after, reply=True),
    "reply torn": Fault(truncate(11), reply=True),
}


def pairs(distances: Iterable[int]) -> dict[str, Faults]:
    """Each two cuts, of which the second is so many requests later, or at the next greeting."""
    found: dict[str, Faults] = {}
    for (first, a), (second, b) in itertools.product(CUTS.items(), repeat=2):
        found[f"{first}, then the greeting {second}"] = (a, b._replace(greeting=True))
        for later in distances:
            found[f"{first}, then {second} {later} later"] = (a, b._replace(later=later))
    return found


def cuts(at: int, count: int) -> dict[str, Faults]:
    """What happens at one of ``count`` requests, and later."""
    distances = range(1, NEAR + (count - at if ALL_PAIRS else 1))
    return {name: (fault,) for name, fault in SINGLES.items()} | pairs(distances)


def plan(proxy: FaultProxy, at: int, faults: Faults) -> None:
    """Let these happen at the ``at``-th request and later."""
    greetings = [fault.action for fault in faults if fault.greeting]

    def noting(fault: Fault) -> Action:
        def action(frame: Frame) -> Iterable[Step]:
            # Not before: a server without create2 ends a connection ahead of the one that is cut.
            while greetings:
                proxy.on("connect", action=greetings.pop())
            return fault.action(frame)

        return action

    for fault in faults:
        if not fault.greeting:
            proxy.on_frame(at + fault.later, noting(fault), reply=fault.reply)


def every(
    live: Callable[[str, int, Faults], int],
    plans: Callable[[int, int], Mapping[str, Faults]] = cuts,
    share: int = 1,
) -> int:
    """Live once without a fault, and with all that is planned for each request; how often.

    ``live`` returns how many requests it has sent; of the pairs of faults one in ``share`` is run.
    """
    count = live("clean", 0, ())
    points = [(at, *planned) for at in range(count) for planned in plans(at, count).items()]
    chosen = [point for point in points if len(point[2]) == 1]
    chosen += [point for point in points if len(point[2]) == 2][SEED % share :: share]

    def wrong(point: tuple[int, str, Faults]) -> str | None:
        at, name, faults = point
        try:
            live(f"{at}-{re.sub('[^a-z0-9]+', '-', name)}", at, faults)
        except Exception as error:
            return f"{name} at request {at}: {type(error).__name__}: {error}".partition("\n")[0]
        return None

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="sweep") as pool:
        found = [line for line in pool.map(wrong, chosen) if line]
    assert not found, f"{len(found)} of {len(chosen)}:\n" + "\n".join(found)
    print(f"{count} requests, {len(chosen)} runs, 0 wrong")
    return len(chosen)
