r"""Bugs that are planted into recipes and the state machine, each with where it is looked for.

A row of `planted/simulated.txt` is ``worlds: name | faults | what it may break | how``, then what
it changes:
``Class.function: text => what the bug makes of it``, or ``Class.function: = what it returns``.
The text stands once in the function, whose ``def`` is at the margin; ``\n`` is a new line.  Name
each invariant that a run may break first.  If `SIMPLE` and `RANDOM` have one name, it is that of
`SIMPLE`.
Without worlds a bug is only for `test_hazards_simulated`.  ``how`` may be: ``beside``, it must be
found by who holds beside whom, and not by the end of their nodes; ``tick``, the server's unit of
time is short, so that sessions hardly outlive their promise, which would hide it; ``every``, chance
is too slow, and every schedule is followed; ``minutes``, even so it takes some, so that only a
longer search looks for it.  Numbers are rows of docs/hazards.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, NamedTuple

import zkwire
from tests.simulation.scenarios import MEMBERS, PARTS, QUEUES, RANDOM, SIMPLE
from tests.support.simulation_locks import (
    BLOCKING,
    SEQUENTIAL,
    Usage,
    contenders,
    disagreement,
    meeting,
    semaphore,
)
from tests.support.simulation_parts import NETWORK, Change
from tests.support.simulation_queue import ITEMS, Plan, queues
from tests.support.simulation_services import mirror
from tests.support.simulation_sessions import following
from zkwire.errors import ConnectionLossError, MultiError, NoNodeError, OutcomeUnknownError
from zkwire.jute.records import Stat
from zkwire.operations.multi import Appended
from zkwire.recipes.queue import AsyncQueue
from zkwire.testing.simulation import Claims, Scenario

# --- what is too long for the table ---------------------------------------------------------------


async def look_without_sync(lock: Any, operations: Any, attempt: Any) -> None:
    with suppress(NoNodeError):
        seen = await operations.get_data(lock.path)
        if lock._is_own(attempt, seen):
            await operations.delete(lock.path, seen.stat.version)
    await operations.delete(lock._token(attempt))


async def look_for_the_item(mine: Any, beginning: str, items: list[bytes], deadline: float) -> int:
    """After a lost reply the queue is searched: a consumer may have the item already."""
    runtime, operations = mine._runtime, mine._runtime.operations
    while True:
        try:
            await runtime.until(operations.multi([Appended(beginning, items, None)]), deadline)
            return 0
        except MultiError:
            await mine._provide(deadline)
        except OutcomeUnknownError:
            await runtime.retry(deadline, operations.sync, ITEMS)
            for name in await mine._list(deadline):
                with suppress(NoNodeError):
                    read, path = operations.get_data, f"{ITEMS}/{name}"
                    if (await runtime.retry(deadline, read, path)).data in items:
                        return 0
        except ConnectionLossError:
            pass


_list = AsyncQueue._list


async def sees_no_return(queue: Any, deadline: float | None, watch: Any) -> list[str]:
    """Waits for new items only, and not for those that are given back."""
    names = await _list(queue, deadline)
    if watch is not None:
        read, limit = queue._runtime.operations.get_children, queue._runtime.in_time(deadline)
        await queue._runtime.retry(limit, read, ITEMS, watch=watch)
    return names


def as_if_made(token: Any) -> Stat:
    """What would stand in a token if its change had been made."""
    return Stat(1, 1, 0, 0, token.version + 1, 0, 0, 0, 0, 0, 1)


# --- where they are looked for --------------------------------------------------------------------

MODULES = [
    import_module(f"zkwire.{package}.{module.name}")
    for package in ("recipes", "session")
    for module in iter_modules([str(Path(zkwire.__file__).parent / package)])
]
HOMES: dict[str, Any] = {
    **{module.__name__.rpartition(".")[2]: module for module in MODULES},
    **{name: home for module in MODULES for name, home in vars(module).items()},
}
WORLDS: dict[str, Scenario] = {
    **{name: world.scenario for name, world in RANDOM.items()},
    **SIMPLE,
    "try": RANDOM["sequential, try"].scenario,
    "alone": contenders(SEQUENTIAL, 1, Usage(stay=0)),
    "brief": contenders(BLOCKING, 2, Usage(stay=1)),
    "blocking, held": contenders(BLOCKING, 2, Usage(stay=1, hold=30.0)),  # longer than a session
    "readers": meeting(),
    "semaphore, long": semaphore(1, 3, Usage(stay=12)),
    "disagreement": disagreement(),
    "queue of 1": QUEUES["put and get"],
    "queue of 2": queues(Plan(items=2)),
    "queue of 3": queues(Plan(items=3)),
    "queue, both ways": queues(Plan(consumers=("take", "get"), items=2)),
    "flat queue": queues(Plan(consumers=("take", "get"), items=2, flat=True)),
    "queue, long": queues(Plan(consumers=("take", "take"), items=3, stay=12)),
    "queue, one long": queues(Plan(consumers=("take",), stay=12)),
    "queue, given back": queues(Plan(consumers=("fail", "get"), patience=30.0)),
    "nodes of one": MEMBERS["two objects of one client"],
    "cache": mirror(),
    "watch": following(),
    "watch, behind": following(sessions=3, lagging=True),
    "barrier": RANDOM["barrier of 2 of 3"].scenario,
    "supervisor": RANDOM["2 supervisors"].scenario,
}
LOCKS = {"blocking": "AsyncBlockingLock"}
"""What ``Lock`` stands for; elsewhere for `AsyncSequentialLock`."""
_FILE = Path(__file__).parent / "planted" / "simulated.txt"
_TABLE = "\n".join([_FILE.read_text(), *(getattr(part, "BUGS", "") for part in PARTS)])


class Bug(NamedTuple):
    """A row of the table, for one of its worlds."""

    scenario: Any  # None for those without worlds
    faults: str
    invariants: str
    how: str
    changes: tuple[Change, ...]


BESIDE = Change(Claims, "_is_gone", (), "None")


def _changes(lines: list[str], lock: str) -> Iterator[Change]:
    edits: dict[str, list[tuple[str, str]]] = {}
    for line in lines:
        target, _, text = line.replace("\\n", "\n").partition(": ")
        home, _, name = target.partition(".")
        home = lock if home == "Lock" else home
        if text.startswith("= "):
            yield Change(HOMES[home], name, (), text[2:], globals())
        else:
            old, _, new = text.partition("=>")
            edits.setdefault(f"{home}.{name}", []).append((old.strip(" "), new.strip(" ")))
    for target, pairs in edits.items():
        home, _, name = target.partition(".")
        yield Change(HOMES[home], name, tuple(pairs))


def _rows() -> Iterator[tuple[str, Bug]]:
    text = re.sub(r"\n    (\\n)?", lambda found: found[1] or " ", _TABLE)
    text = re.sub(r"\n  # .*(\n  #.*)*", "", text)
    for row in re.split(r"\n+(?=\S)", text.strip()):
        head, *lines = row.split("\n  ")
        worlds, _, rest = head.partition(": ")
        name, faults, invariants, *how = (part.strip() for part in rest.split("|"))
        faults = faults.replace("network", " ".join(NETWORK))
        for world in worlds.split(" + "):
            changes = tuple(_changes(lines, LOCKS.get(world[:8], "AsyncSequentialLock")))
            if "beside" in "".join(how):
                changes += (BESIDE,)
            bug = Bug(WORLDS.get(world), faults, invariants, " ".join(how), changes)
            yield f"{world}: {name}".removeprefix(": "), bug


EVERY = dict(_rows())
BUGS = {name: bug for name, bug in EVERY.items() if bug.scenario is not None}
"""Those that `test_hazards_simulated` searches for."""
