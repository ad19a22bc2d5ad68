"""One member of a group: its name, and what others see of it."""

from __future__ import annotations

from zkwire.jute.record import Record
from zkwire.operations.checks import check_text
from zkwire.recipes.services.node_owner import ID_LIKE
from zkwire.recipes.services.persistent_node import AsyncPersistentNode
from zkwire.wire.paths import check_characters

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


class UnnamedKeeper(AsyncPersistentNode):
    """A member whose name its first session makes; until then its path is the group's."""

    _named = False

    @property
    def _longest_path(self) -> str:
        return self._path if self._named else f"{self._path}/{ID_LIKE}{PARTY}"

    async def _serve(self, runtime: Any) -> None:
        if not self._named:
            self._path = f"{self._path}/{runtime.unique()}{PARTY}"
            self._named = True
        await super()._serve(runtime)


def check_name(what: str, name: str) -> str:
    """``name`` if it can be that of a node."""
    if not check_text(what, name) or "/" in name:
        raise ValueError(f"{what} must not {'contain a slash' if name else 'be empty'}: {name!r}")
    if name in {".", ".."}:
        raise ValueError(f"{what} must not be '.' or '..': {name!r}")
    check_characters(what, name)
    return str.__str__(name)  # a member of an enumeration is formatted as its name
