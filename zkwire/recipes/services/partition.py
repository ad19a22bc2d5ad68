"""What members have to agree on: the items, where their nodes are, and which is whose.

    <path>/members/<name>   a member; its data says which items it shares out
    <path>/items/<item>     the fair lock of an item, with its contenders

All members must be given the same items.  Where they are not, those of the oldest member count: a
member with others ends with an error, and the others share out all items without it.
"""

from __future__ import annotations

from collections.abc import Iterable

from zkwire.operations.checks import check_acl
from zkwire.recipes.services.allotment import MARK, allot, difference, digest, same
from zkwire.recipes.services.member import check_name
from zkwire.recipes.services.persistent_node import AsyncPersistentNode
from zkwire.recipes.services.tenure import Tenure
from zkwire.wire.paths import check_below_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from zkwire.jute.records import ACL
    from zkwire.recipes.services.problem import Problem
    from zkwire.recipes.services.service import Background


class MemberKeeper(AsyncPersistentNode):
    """The node of a member; ``tell`` is told each change."""

    _called = "Partitioner's node"
    _tell: Callable[[], object]

    def _changed(self) -> None:
        super()._changed()
        self._tell()


class Partition:
    """See the module's docstring.  Checks what a user has given."""

    def __init__(
        self, path: str, items: Iterable[str], name: str | None, acl: Sequence[ACL] | None
    ) -> None:
        if isinstance(items, str | bytes) or not isinstance(items, Iterable):
            raise TypeError(f"the items must be a list of names, not {items!r}")
        path = check_below_root(path, "a partitioner")
        self.path: str = path
        self.members: str = f"{path}/members"
        self.items: tuple[str, ...] = tuple(check_name("an item", item) for item in items)
        if not self.items:
            raise ValueError("there are no items to share out")
        if len(set(self.items)) < len(self.items):
            twice = next(item for item in self.items if self.items.count(item) > 1)
            raise ValueError(f"the item {twice!r} is there twice")
        self.name: str | None = None if name is None else check_name("a member's name", name)
        self.acl: Sequence[ACL] | None = None if acl is None else check_acl(acl)
        self.data: bytes = digest(self.items)

    def join(
        self, runtime: Background, tell: Callable[[], object], trouble: Problem
    ) -> MemberKeeper:
        """Make the member's node in this session, and keep it."""
        self.name = self.name or runtime.unique()
        sessions: Any = runtime  # the driver behind it is one
        path = f"{self.members}/{self.name}"
        member = MemberKeeper(sessions, path, self.data, acl=self.acl)
        member._tell, member._trouble = tell, trouble
        return member

    def tenure(
        self, runtime: Background, item: str, tell: Callable[[], object], trouble: Problem
    ) -> Tenure:
        """Ask for the lock of an item."""
        path, text = f"{self.path}/items/{item}", self.name or ""
        return Tenure(runtime, path, text, self.acl, tell, trouble)

    def allotted(self, roll: dict[str, tuple[int, bytes]]) -> frozenset[str] | None:
        """The items of this member; ``roll``: the czxid and the data of each member.

        None if it is no member itself.  ValueError if the oldest member has other items.
        """
        members = {name: seen for name, seen in roll.items() if seen[1].startswith(MARK)}
        if self.name not in members:
            return None
        oldest = min(members, key=lambda name: members[name])
        if not same(members[oldest][1], self.data):
            raise ValueError(
                f"{self.path}: member {oldest!r}, the oldest, shares out other items than this "
                f"one: {difference(self.items, members[oldest][1])}"
            )
        sharing = [name for name, (_, data) in members.items() if same(data, self.data)]
        owners = allot(self.items, sharing)
        return frozenset(item for item, owner in owners.items() if owner == self.name)
