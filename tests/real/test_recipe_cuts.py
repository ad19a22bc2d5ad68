"""Cut the connection at each request of each recipe's life, for both clients: no caller is told.

The lives are those that are refused things, see `tests/refusals`, and those of the three calls for
trees; the cuts are those of `tests/support/sweeping.py`, of the pairs one in sixteen.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import count
from typing import Any

import pytest

from tests.refusals.lives import CELLS
from tests.support.examples import STRIDE
from tests.support.lock_helpers import Running
from tests.support.sweeping import ALL_PAIRS, Faults, every, plan
from zkwire import AsyncClient, Client
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


NAMES = ["a", "a/b", "a/b/c", "a/d", "e", "e/f", "g"]
# A look at each of eight nodes, their deletion, and a look at what is left: nothing.
REQUESTS = {"ensure_path": 5, "delete_tree": 8 + 8 + 1, "walk": 8}


async def tree(stage: Stage, verb: str) -> None:
    """Make a path of three, delete the tree, or walk over it: no node before its parent."""
    call, top = getattr(stage.client, verb), stage.path
    if verb == "ensure_path":
        await stage.call(call, f"{top}/a/b")
        assert stage.other.get_all_children_number(top) == 2
        return
    for name in ("", *NAMES):
        stage.other.create(f"{top}/{name}".rstrip("/"), b"x")
    if verb == "delete_tree":
        await stage.call(call, top)
        assert stage.other.exists(top) is None
        return
    walked = [path async for path in call(top)] if stage.asynchronous else list(call(top))
    assert sorted(walked) == [top, *(f"{top}/{name}" for name in NAMES)]
    for index, path in enumerate(walked[1:], 1):
        assert path.rpartition("/")[0] in walked[:index], path


LIVES = [(title, life, kind) for title, life, kind in CELLS if title != TOLD] + [
    (verb, partial(tree, verb=verb), kind) for verb in REQUESTS for kind in (Client, AsyncClient)
]


@pytest.mark.own_server
@pytest.mark.parametrize(
    ("title", "life", "kind"),
    [pytest.param(*each, id=f"{each[0]}-{each[2].__name__}") for each in LIVES],
)
def test_every_cut_at_every_request_of_a_recipe(title: str, life: Life, kind: type[Any]) -> None:
    numbers, clean, sent = count(), list[Any](), list[int]()
    with Server() as server, Client(server.hosts) as other:

        def live(_: str, at: int, faults: Faults) -> int:
            stage = CutStage(server, other, f"/kit{next(numbers)}", kind)
            stage._clean = clean[0] if clean else None
            with FaultProxy(server.hosts) as proxy:
                plan(proxy, at, faults)
                Running(lambda: stage._live(life, proxy, None)).result(4 * LIMIT)
                clean.append(stage._clean)
                sent.append(len(stage.requests))
                other.delete_tree(stage.path)  # each life looks at all nodes, again and again
                return sent[-1]

        every(live, share=1 if ALL_PAIRS else 16 * STRIDE)
    assert sent[0] == REQUESTS.get(title, sent[0])
