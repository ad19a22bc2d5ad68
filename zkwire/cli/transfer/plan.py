"""What is to be done so that one tree becomes equal to another: it looks, and changes nothing.

A node is equal if its data is, and its access list where that is to be kept.
"""

from __future__ import annotations

from zkwire.cli.transfer.node import Node, ancestors, below, has_hidden_hash
from zkwire.cli.transfer.reading import TreeReader
from zkwire.cli.transfer.window import Window, result
from zkwire.errors import NodeExistsError, NoNodeError, ServerError
from zkwire.operations.base import HEADER_BYTES
from zkwire.wire.model import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from zkwire import ACL
    from zkwire.cli.transfer.place import Place
    from zkwire.cli.transfer.window import Answers
    from zkwire.net.pipeline import Pipeline

ACLS = ("keep", "open", "creator")


class Difference:
    """How a node differs, and the versions that it had when that was seen."""

    __slots__ = ("acl", "aversion", "data", "ephemeral", "version")

    def __init__(self, data: bool, acl: bool, ephemeral: bool, version: int, aversion: int) -> None:
        self.data: bool = data
        self.acl: bool = acl
        self.ephemeral: bool = ephemeral
        self.version: int = version
        self.aversion: int = aversion

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

    def __init__(self, place: Place, acls: str) -> None:
        self.place = place
        self._acls = acls
        self.equal: int = 0
        self.total: int = 0
        self.missing: set[str] = set()
        self.different: dict[str, Difference] = {}
        self.extra: list[str] = []

    def acl(self, node: Node) -> Sequence[ACL]:
        """The access list that the node is to have."""
        return {"open": OPEN_ACL_UNSAFE, "creator": CREATOR_ALL_ACL}.get(self._acls, node.acl)

    def full(self, node: Node) -> str:
        """The node's path at the place."""
        return below(self.place.path, node.path)

    def ask(self, operations: Pipeline, node: Node) -> list[object]:
        """The requests that :meth:`compare` takes the answers of."""
        return [operations.get_data(self.full(node)), operations.get_acl(self.full(node))]

    def compare(self, node: Node, answers: Answers) -> Difference | None:
        """How the node at the place differs; None if there is none."""
        for answer in answers:
            if isinstance(answer, NoNodeError):
                return None
            if isinstance(answer, ServerError):
                raise answer
        (data, stat), (acl, acl_stat) = answers
        kept = self._acls == "creator" or list(acl) == list(self.acl(node))
        return Difference(
            data != node.data,
            not kept,
            stat.ephemeral_owner != 0,
            stat.version,
            acl_stat.aversion,
        )

    def look(self, nodes: Iterable[Node]) -> None:
        """Compare the nodes with what is at the place.  ValueError for one that cannot be there."""
        if not self._is_there():
            for node in nodes:
                self._check(node)
                self.missing.add(node.path)
        else:
            for node, answers in Window(self.place.client, self.ask).each(map(self._check, nodes)):
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
        for node in TreeReader(self.place, ephemerals=True):
            if node.stat is not None and node.stat.ephemeral_owner:
                kept.update(ancestors(node.path))
            elif node.path not in paths:
                found.append(node.path)
        self.extra = [path for path in reversed(found) if path not in kept]

    def check_allowed(self, *, force: bool) -> None:
        """Raise NodeExistsError if something would be overwritten that must not be."""
        stands = [(p, d) for p, d in self.different.items() if d.ephemeral or not force]
        if not stands:
            return
        path, difference = stands[0]
        count = "1 node differs" if len(stands) == 1 else f"{len(stands)} nodes differ"
        cure = (
            "--force overwrites, --dry-run lists" if not force else "--force does not change that"
        )
        raise NodeExistsError(
            f"{count}, this one in its {difference}; nothing was changed ({cure})",
            op="load",
            path=below(self.place.path, path),
        )

    def _is_there(self) -> bool:
        """Whether there is anything at the place."""
        return result(self.place.client, lambda ops: ops.exists(self.place.path)) is not None

    def _check(self, node: Node) -> Node:
        """``node`` if it can be written at all."""
        path = self.full(node)
        if self.place.is_reserved(node.path):
            raise ValueError(f"{path} is the servers' own node and cannot be written")
        if self._acls == "keep" and has_hidden_hash(node.acl):
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


def _request_bytes(path: str, data: bytes, acl: Sequence[ACL]) -> int:
    """How long the request is that creates such a node."""
    ids = sum(12 + len(entry.id.scheme.encode()) + len(entry.id.id.encode()) for entry in acl)
    return 16 + len(path.encode()) + len(data) + ids
