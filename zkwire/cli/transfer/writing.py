"""Carries out a plan: creates, changes and deletes nodes, in windows.

A change that a lost connection has left in doubt is made again.  The server refuses the second of
two equal ones, and then the node is compared: if it is as it is to be, the change is done.  What
another client has done meanwhile ends it with the server's refusal; nothing of that is overwritten.
"""

from __future__ import annotations

from zkwire.cli.transfer.node import Node, below
from zkwire.cli.transfer.window import Window
from zkwire.errors import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError, ServerError
from zkwire.wire.paths import parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from zkwire.cli.transfer.plan import Plan
    from zkwire.cli.transfer.window import Answers
    from zkwire.net.pipeline import Pipeline


class Writer:
    """Carries out a plan; counts what it has ``created``, ``changed`` and ``deleted``."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._client = plan.place.client
        self.created: int = 0
        self.changed: int = 0
        self.deleted: int = 0

    @property
    def done(self) -> dict[str, int]:
        """The three counts by name."""
        return {"created": self.created, "changed": self.changed, "deleted": self.deleted}

    def write(self, nodes: Iterable[Node]) -> None:
        """Create and change the nodes that are not equal; parents come first."""
        plan = self._plan
        if plan.missing and plan.place.path != "/" and (above := parent(plan.place.path)) != "/":
            self._client.ensure_path(above)
        window, waits = Window(self._client, self._ask), set[str]()
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

    def _ask(self, operations: Pipeline, node: Node) -> list[object]:
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

    def _settle(self, node: Node, answers: Answers) -> str:
        for answer in answers:
            if isinstance(answer, ServerError) and not self._is_done(node, answer):
                raise answer
        if node.path in self._plan.missing:
            self.created += 1
        else:
            self.changed += 1
        return node.path

    def _is_done(self, node: Node, refusal: ServerError) -> bool:
        """Whether the server refuses because the first of two equal changes was executed."""
        if not isinstance(refusal, NodeExistsError | BadVersionError):
            return False
        window = Window(self._client, self._plan.ask)
        window.add(node)
        difference = self._plan.compare(*window.pop())
        return difference is not None and not difference

    def delete(self) -> list[str]:
        """Delete what is too much; returns what could not be, as it has children by now."""
        root, left = self._plan.place.path, list[str]()
        window = Window(
            self._client, lambda operations, path: [operations.delete(below(root, path))]
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

    def _settle_delete(self, left: list[str], path: str, answers: Answers) -> None:
        answer = answers[0]
        if isinstance(answer, NotEmptyError):
            left.append(path)
        elif isinstance(answer, ServerError) and not isinstance(answer, NoNodeError):
            raise answer
        else:
            self.deleted += 1
