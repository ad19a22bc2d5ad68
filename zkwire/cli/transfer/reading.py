"""Reads a tree: level by level, so parents come before their children, names in order.

What is read is no snapshot: each node is as it was at some moment of the walk.  A node that goes
meanwhile is skipped.  Only paths are kept, and the nodes in flight.
"""

from __future__ import annotations

from collections import deque

from zkwire.cli.transfer.node import Node, below, child, has_hidden_hash
from zkwire.cli.transfer.window import Window
from zkwire.errors import NoNodeError, ServerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from zkwire.cli.transfer.place import Place
    from zkwire.cli.transfer.window import Answers

EACH = 512  # bytes of an answer beside the data, about


class TreeReader:
    """The nodes of one tree.

    ``ephemerals``: whether the ephemeral ones are among them.  ``left_out`` counts those that are
    not, ``gone`` the nodes that were deleted meanwhile, and ``hidden`` the nodes with an access
    list that the server has shown in part.
    """

    def __init__(self, place: Place, *, ephemerals: bool) -> None:
        self._place = place
        self._ephemerals = ephemerals
        self.left_out: int = 0
        self.gone: int = 0
        self.hidden: int = 0

    def __iter__(self) -> Iterator[Node]:
        client, root = self._place.client, self._place.path
        nodes = Window(
            client,
            lambda ops, path: [ops.get_data(below(root, path)), ops.get_acl(below(root, path))],
        )
        lists = Window(client, lambda ops, path: [ops.get_children(below(root, path))])
        todo, size = deque(["/"]), EACH
        while todo or nodes or lists:
            if lists and (lists.full or not todo):
                todo.extend(self._children(*lists.pop()))
            elif todo and not nodes.full:
                nodes.add(todo.popleft(), size)
            else:
                node = self._node(*nodes.pop())
                if node is None or node.stat is None:
                    continue
                # The next ones may be as large: with large ones fewer are asked for at a time.
                size = max(len(node.data) + EACH, size * 7 // 8)
                if node.stat.num_children:
                    lists.add(node.path)
                if node.stat.ephemeral_owner and not self._ephemerals:
                    self.left_out += 1
                    continue
                self.hidden += has_hidden_hash(node.acl)
                yield node

    def _node(self, path: str, answers: Answers) -> Node | None:
        read, listed = answers
        for answer in answers:
            if isinstance(answer, NoNodeError) and path != "/":
                self.gone += 1
                return None
            if isinstance(answer, ServerError):
                raise answer
        data, stat = read
        return Node(path, data, listed[0], stat)

    def _children(self, path: str, answers: Answers) -> list[str]:
        names = answers[0]
        if isinstance(names, NoNodeError):
            return []
        if isinstance(names, ServerError):
            raise names
        paths = [child(path, name) for name in sorted(names)]
        return [found for found in paths if not self._place.is_reserved(found)]
