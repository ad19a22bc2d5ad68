"""Cut the connection at each request of each recipe's life, for both clients: no caller is told.

The lives are those that are refused things, see `tests/refusals`; the cuts are those of
`tests/support/sweeping.py`, of the pairs one in sixteen.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

import pytest

from tests.refusals.lives import CELLS
from tests.support.examples import STRIDE
from tests.support.lock_helpers import Running
from tests.support.sweeping import ALL_PAIRS, Faults, every, plan
from zkwire import Client
from zkwire.testing import FaultProxy, Server
from zkwire.testing.kit import LIMIT, Life, Stage, masked

TOLD = "guard"
"""Its operations are the caller's own, so that the caller is told of a lost connection."""


class CutStage(Stage):
    """A stage whose client may take the server for an old one, which has no containers."""

    def _left(self) -> Counter[str]:
        def empty() -> Counter[str]:
            return Counter(
                f"node {masked(path, self.path)}"
                for path, node in self._server.tree.nodes.items()
                if path.startswith(self.path) and not (node.owner or node.children or node.data)
            )

        return super()._left() - self._server.inspect(empty)


@pytest.mark.own_server
@pytest.mark.parametrize(
    ("life", "kind"),
    [
        pytest.param(life, kind, id=f"{title}-{kind.__name__}")
        for title, life, kind in CELLS
        if title != TOLD
    ],
)
def test_every_cut_at_every_request_of_a_recipe(life: Life, kind: type[Any]) -> None:
    numbers, clean = count(), list[Any]()
    with Server() as server, Client(server.hosts) as other:

        def live(_: str, at: int, faults: Faults) -> int:
            stage = CutStage(server, other, f"/kit{next(numbers)}", kind)
            stage._clean = clean[0] if clean else None
            with FaultProxy(server.hosts) as proxy:
                plan(proxy, at, faults)
                Running(lambda: stage._live(life, proxy, None)).result(4 * LIMIT)
                clean.append(stage._clean)
                return len(stage.requests)

        every(live, share=1 if ALL_PAIRS else 16 * STRIDE)
