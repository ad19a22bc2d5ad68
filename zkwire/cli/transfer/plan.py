"""What is to be done so that one tree becomes equal to another: it looks, and changes nothing.

A node is equal if its data is, and its access list where that is to be kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import zkwire
from zkwire.cli.transfer import tree
from zkwire.errors import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError, ServerError
from zkwire.net.pipeline import Pipeline
from zkwire.operations.nodes import HEADER_BYTES
from zkwire.operations.sequence import behind, highest_number, next_number, used_up
from zkwire.wire.model import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE
from zkwire.wire.paths import parent

ACLS = ("keep", "open", "creator")


class Difference(NamedTuple):
    """How a node differs, and the versions that it had when that was seen."""

    data: bool
    acl: bool
    ephemeral: bool
    version: int
    aversion: int

    def __bool__(self) -> bool:
        return self.data or self.acl or self.ephemeral

    def __str__(self) -> str:
        parts = {"data": self.data, "ACL": self.acl, "owner (it is ephemeral)": self.ephemeral}
        return ", ".join(name for name, differs in parts.items() if differs)


class Plan:
    """What is to be done at ``place``; paths are those of the tree.

    ``acls`` is one of ``ACLS``: the nodes' own access lists, or one for all of them.  ``extra``,
    the deepest first, is what the other tree lacks: nothing unless :meth:`find_extra` is called.
    """

    def __init__(self, place: tree.Place, acls: str) -> None:
        self.place = place
        self._acls = acls
        self.equal: int = 0
        self.total: int = 0
        self.missing: set[str] = set()
        self.different: dict[str, Difference] = {}
        self.extra: list[str] = []

    def acl(self, node: tree.Node) -> Sequence[zkwire.ACL]:
        """The access list that the node is to have."""
        return {"open": OPEN_ACL_UNSAFE, "creator": CREATOR_ALL_ACL}.get(self._acls, node.acl)

    def full(self, node: tree.Node) -> str:
        """The node's path at the place."""
        return tree.below(self.place.path, node.path)

    def ask(self, operations: Pipeline, node: tree.Node) -> list[object]:
        """The requests that :meth:`compare` takes the answers of."""
        return [operations.get_data(self.full(node)), operations.get_acl(self.full(node))]

    def compare(self, node: tree.Node, answers: tree.Answers) -> Difference | None:
        """How the node at the place differs; None if there is none."""
        for answer in answers:
            if isinstance(answer, NoNodeError):
                return None
            if isinstance(answer, ServerError):
                raise answer
        (data, stat), (acl, acl_stat) = answers
        kept = self._acls == "creator" or list(acl) == list(self.acl(node))
        versions = stat.version, acl_stat.aversion
        return Difference(data != node.data, not kept, stat.ephemeral_owner != 0, *versions)

    def look(self, nodes: Iterable[tree.Node]) -> None:
        """Compare the nodes with what is at the place.  ValueError for one that cannot be there."""
        window = tree.Window(self.place.client, self.ask)
        for node, answers in window.each(map(self._check, nodes)):
            difference = self.compare(node, answers)
            if difference is None:
                self.missing.add(node.path)
            elif difference:
                self.different[node.path] = difference
            else:
                self.equal += 1
        self.total = len(self.missing) + len(self.different) + self.equal

    def find_extra(self, paths: set[str]) -> None:
        """Find what else is at the place, but ephemeral nodes and what is above them."""
        if not self._is_there():
            return
        found, kept = list[str](), set[str]()
        for node in tree.TreeReader(self.place, ephemerals=True):
            path = node.path
            if node.stat is not None and node.stat.ephemeral_owner:
                while (path := parent(path)) not in kept:
                    kept.add(path)
            elif path not in paths:
                found.append(path)
        self.extra = [path for path in reversed(found) if path not in kept]

    def check_allowed(self, *, force: bool) -> None:
        """Raise NodeExistsError if something would be overwritten that must not be."""
        stands = [(p, d) for p, d in self.different.items() if d.ephemeral or not force]
        if not stands:
            return
        path, difference = stands[0]
        count = "1 node differs" if len(stands) == 1 else f"{len(stands)} nodes differ"
        cure = "--force does not change that" if force else "--force overwrites, --dry-run lists"
        words = f"{count}, this one in its {difference}; nothing was changed ({cure})"
        raise NodeExistsError(words, op="load", path=tree.below(self.place.path, path))

    def _is_there(self) -> bool:
        """Whether there is anything at the place."""
        return tree.result(self.place.client, lambda ops: ops.exists(self.place.path)) is not None

    def _check(self, node: tree.Node) -> tree.Node:
        """``node`` if it can be written at all."""
        path = self.full(node)
        if self.place.is_reserved(node.path):
            raise ValueError(f"{path} is the servers' own node and cannot be written")
        if self._acls == "keep" and tree.has_hidden_hash(node.acl):
            raise ValueError(
                f"the hash of a password is hidden in the ACL of {node.path}: read the tree with "
                "--auth of a user that may change the ACL, or choose --acl open or creator"
            )
        size = _request_bytes(path, node.data, self.acl(node)) + HEADER_BYTES
        limit = self.place.client._send_limit
        if size > limit:
            raise ValueError(
                f"{path} is too large: its request has {size} bytes, and --send-limit is {limit}"
            )
        return node


def _request_bytes(path: str, data: bytes, acl: Sequence[zkwire.ACL]) -> int:
    """How long the request is that creates such a node."""
    ids = sum(12 + len(entry.id.scheme.encode()) + len(entry.id.id.encode()) for entry in acl)
    return 16 + len(path.encode()) + len(data) + ids


# --- writing --------------------------------------------------------------------------------------
# Carries out a plan: creates, changes and deletes nodes, in windows.
#
# A change that a lost connection has left in doubt is made again.  The server refuses the second of
# two equal ones, and then the node is compared: if it is as it is to be, the change is done.  What
# another client has done meanwhile ends it with the server's refusal; nothing of that is
# overwritten.


class Writer:
    """Carries out a plan; ``done`` counts what it has created, changed and deleted."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._client = plan.place.client
        self.done: dict[str, int] = {"created": 0, "changed": 0, "deleted": 0}

    def write(self, nodes: Iterable[tree.Node]) -> None:
        """Create and change the nodes that are not equal; parents come first."""
        plan = self._plan
        if plan.missing and plan.place.path != "/" and (above := parent(plan.place.path)) != "/":
            self._client.ensure_path(above)
        window, waits = tree.Window(self._client, self._ask), set[str]()
        for node in nodes:
            if node.path not in plan.missing and node.path not in plan.different:
                continue
            # A repeated create of the parent would come behind that of the child.
            while window and (window.full or parent(node.path) in waits):
                waits.discard(self._settle(*window.pop()))
            window.add(node, len(node.data) + len(node.path))
            waits.add(node.path)
        while window:
            self._settle(*window.pop())

    def _ask(self, operations: Pipeline, node: tree.Node) -> list[object]:
        plan, path = self._plan, self._plan.full(node)
        difference = plan.different.get(node.path)
        if difference is None:
            return [operations.create(path, node.data, plan.acl(node))]
        asked: list[object] = []
        if difference.data:
            asked.append(operations.set_data(path, node.data, difference.version))
        if difference.acl:  # behind the data: the new list may forbid to write it
            asked.append(operations.set_acl(path, plan.acl(node), difference.aversion))
        return asked

    def _settle(self, node: tree.Node, answers: tree.Answers) -> str:
        for answer in answers:
            if isinstance(answer, ServerError) and not self._is_done(node, answer):
                raise answer
        self.done["created" if node.path in self._plan.missing else "changed"] += 1
        return node.path

    def _is_done(self, node: tree.Node, refusal: ServerError) -> bool:
        """Whether the server refuses because the first of two equal changes was executed."""
        if not isinstance(refusal, NodeExistsError | BadVersionError):
            return False
        window = tree.Window(self._client, self._plan.ask)
        window.add(node)
        difference = self._plan.compare(*window.pop())
        return difference is not None and not difference

    def delete(self) -> list[str]:
        """Delete what is too much; returns what could not be, as it has children by now."""
        root, left = self._plan.place.path, list[str]()
        window = tree.Window(
            self._client, lambda operations, path: [operations.delete(tree.below(root, path))]
        )
        depth = 0
        for path in self._plan.extra:
            while window and (window.full or path.count("/") != depth):
                self._settle_delete(left, *window.pop())
            depth = path.count("/")
            window.add(path)
        while window:
            self._settle_delete(left, *window.pop())
        return left

    def _settle_delete(self, left: list[str], path: str, answers: tree.Answers) -> None:
        answer = answers[0]
        if isinstance(answer, NotEmptyError):
            left.append(path)
        elif isinstance(answer, ServerError) and not isinstance(answer, NoNodeError):
            raise answer
        else:
            self.done["deleted"] += 1


# --- numbers --------------------------------------------------------------------------------------
# Brings the counters of the new tree past the numbers in the names that it has.
#
# See :mod:`zkwire.operations.sequence`.  A name that ends in ten digits may have them from
# elsewhere (a time in seconds).  Where the source tells its counter, only a lower number can have
# come from it.

MOST_NUMBERS = 1_000_000
"""Numbers that one run uses up; seen on one server: 8,000 to 24,000 in a second."""


class Numbers:
    """The numbers that the names of one tree have; ``left_behind``: paths, and what is wrong."""

    def __init__(self, place: tree.Place) -> None:
        self._place = place
        self._counters: dict[str, int] = {}  # of the source
        self._highest: dict[str, tuple[int, int]] = {}  # of all names, and below that counter
        self._left = MOST_NUMBERS
        self.left_behind: dict[str, str] = {}

    def add(self, node: tree.Node) -> None:
        """Take notice of a node of the source; parents come first."""
        if node.sequence is not None:
            self._counters[node.path] = node.sequence
        number = highest_number([node.path])
        if number < 0:
            return
        above = parent(node.path)
        highest, own = self._highest.get(above, (-1, -1))
        if number < self._counters.get(above, number + 1):
            own = max(own, number)
        self._highest[above] = (max(highest, number), own)

    def bring_forward(self) -> None:
        """Use up the numbers that are missing, as long as there are not too many."""
        client, root = self._place.client, self._place.path
        window = tree.Window(
            client, lambda operations, path: [operations.exists(tree.below(root, path))]
        )
        for path, (stat,) in window.each(self._highest):
            if isinstance(stat, ServerError):
                raise stat
            if stat is not None:  # else it was deleted meanwhile
                self._bring(path, stat)

    def _bring(self, path: str, stat: zkwire.Stat) -> None:
        full, number = (
            tree.below(self._place.path, path),
            next_number(stat.cversion, stat.num_children),
        )
        highest, own = self._highest[path]
        if highest + 1 - number > self._left:
            highest = own
        missing = highest + 1 - number
        if missing <= 0:
            return
        words = behind(full, number, highest)
        if missing > self._left:
            self.left_behind[full] = f"{words}; one run uses up {MOST_NUMBERS} numbers at most"
            return
        self._left -= missing
        try:
            while missing > 0:
                missing -= self._use_up(full, missing)
        except ServerError as error:
            self.left_behind[full] = f"{words}; {error}"

    def _use_up(self, path: str, count: int) -> int:
        """Use up ``count`` numbers, or as many as go into one request; returns how many."""
        pairs = used_up(path, count)
        tree.result(self._place.client, lambda operations: operations.multi(pairs))
        return len(pairs) // 2
