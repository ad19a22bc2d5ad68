"""One member of a group: its name, and what others see of it."""

from __future__ import annotations

from zkwire.jute.record import Record
from zkwire.recipes.services.persistent_node import NodeKeeper
from zkwire.wire.paths import check_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PARTY = "__party__"
"""What kazoo's Party knows the names of its members by."""


class Member(Record):
    """A member of a group: its name and data, its session, and the fence of its membership.

    The fence is the czxid of its node: of two memberships the later one has the higher fence, also
    of two that follow one another under one name.  ``session_id`` is 0 for a node of no session.
    """

    name: str
    data: bytes
    session_id: int
    fence: int


class UnnamedKeeper(NodeKeeper):
    """A member whose name its first session makes; until then its path is the group's."""

    _named = False

    async def _serve(self, runtime: Any) -> None:
        if not self._named:
            self._path = f"{self._path}/{runtime.unique()}{PARTY}"
            self._named = True
        await super()._serve(runtime)


def check_name(name: str) -> str:
    """``name`` if a member can have it."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a member must be a str, not {type(name).__name__}")
    if not name or "/" in name:
        raise ValueError(f"the name of a member must be one name, without '/': {name!r}")
    return check_path(f"/{name}")[1:]
