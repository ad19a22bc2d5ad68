"""Of what is done once per period: its scenario, and what it does when a connection is lost."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import pairwise

from tests.connection_loss.classic import made, of_client
from tests.connection_loss.losses import HASTE, Trial
from tests.support.lock_helpers import GRACE, PATIENCE
from tests.support.simulation_parts import NETWORK, Judge, World, has_faults, lives, living
from zkwire import OncePer
from zkwire.errors import ZooKeeperError
from zkwire.recipes.once_per import AsyncOncePer
from zkwire.testing.simulation import Scenario
from zkwire.testing.simulation.client import Cancelled, Client, ViolationError
from zkwire.testing.simulation.simulation import Simulation

# --- clients that ask for their turn --------------------------------------------------------------

JOB = "/jobs/one"
PERIOD = 60.0


class Turns(Judge):
    """OFTEN: between two turns there is a period.  NEVER: what is due is claimed by one of all.

    ORPHAN: nothing is claimed by nobody, and nothing else is left.
    """

    def __init__(self) -> None:
        self._claimed: list[float] = []

    async def live(self, client: Client, _: int) -> None:
        """Ask twice."""
        turn = AsyncOncePer(client.world, JOB, PERIOD * 1000)
        for _ in range(2):
            with suppress(ZooKeeperError, Cancelled):
                if await turn.claim(40.0):
                    self._claimed.append(client.world.now())

    def end(self, sim: Simulation) -> None:
        times = sorted(self._claimed)
        if any(second - first < PERIOD / 2 for first, second in pairwise(times)):
            raise ViolationError("OFTEN", f"claimed at {times}")
        if not times and not has_faults(sim):
            raise ViolationError("NEVER", "all were refused though nothing happened")
        node = sim.tree.nodes.get(JOB)
        if node is None:
            return
        if node.data and not times and len(living(sim)) == len(sim.clients):
            raise ViolationError("ORPHAN", f"claimed by none: {node.data!r}")
        if node.children:
            raise ViolationError("ORPHAN", f"left: {list(node.children)}")


SIMPLE: dict[str, Scenario] = {"once per": lives(2, Turns)}
RANDOM = {"once per": World(lives(3, Turns), NETWORK, 200)}
BUGS = r"""
once per: believes a loss | cut linger cancel slow | OFTEN ORPHAN NEVER
  AsyncOncePer.claim: doubt = True => won = True; break
once per: a new name | cut linger cancel slow | OFTEN ORPHAN NEVER
  AsyncOncePer._try: data = attempt.id.encode()
    => attempt.id = attempt.id[:-8] + self._runtime.unique()[-8:]
    \n    data = attempt.id.encode()
once per: keeps doubt | cut linger cancel slow | ORPHAN
  AsyncOncePer._clean_up_after: = None
once per: gives back anything | cut linger cancel slow | OFTEN ORPHAN NEVER
  AsyncOncePer.claim: self._clean_up_after => attempt.entered = True; self._clean_up_after
  AsyncOncePer._leave: data.startswith(attempt.id.encode()) => True
"""

# --- a lost connection ----------------------------------------------------------------------------

HOUR = 3600.0  # longer than any experiment


def due(trial: Trial) -> None:
    trial.observer.create(trial.path)
    trial.make("OncePer", trial.path, HOUR)


def claim(trial: Trial, timeout: float = PATIENCE) -> object:
    claimed = trial.notes["claimed"] = trial.do("claim", timeout)
    return claimed


def claims(trial: Trial) -> str:
    return "claimed" if trial.observer.get_data(trial.path).data else "due"


def others_claim(trial: Trial) -> None:
    assert not OncePer(trial.observer, trial.path, HOUR).claim(GRACE), "claimed twice"


def claimed_once(trial: Trial) -> str:
    others_claim(trial)
    return "claimed once" if trial.notes["claimed"] else "claimed, and not done in this period"


CALLS = (
    of_client("`OncePer.claim`", "set_data", claim, claims, claimed_once, due,
              made("OncePer", HOUR, then=claim), rival=others_claim,
              rivals="another client claims",
              hasty=partial(claim, timeout=HASTE), late="claim again: it was given back",
              renew="make a new `Client`; if it was claimed, the work waits for the next period"),
)  # fmt: skip
