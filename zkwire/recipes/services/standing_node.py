"""A kept node that no session owns: it stays when a session ends, and is known again in the next.

Its owner is 0 like that of every such node, so what makes it makes a token in the same transaction:
an ephemeral node beside it, named by an id of its own, with the same czxid.  The token proves which
node is its own, even if the reply to the create was lost, and is deleted when that is known.

The token ends with the session.  So if a session expires behind a lost reply to a create, a node
that this create has made is foreign in the next session: it is reported, and stays.
"""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import MultiError, NoNodeError
from zkwire.operations.checks import check_flag
from zkwire.operations.multi import Create
from zkwire.recipes.services.persistent_node import NodeKeeper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Any

    from zkwire.jute.records import Stat

TOKEN = "-zkwire-"
"""What stands between the node's name and the id in the name of a token."""


class StandingKeeper(NodeKeeper):
    """See the module's docstring."""

    _ephemeral = False
    _token = ""  # the path of a token that may be there

    def _make(self, runtime: Any, data: bytes) -> Awaitable[object]:
        if not self._token:
            self._token = f"{self._path}{TOKEN}{runtime.unique()}"
        both = [
            Create(self._path, data, self._acl),
            Create(self._token, b"", self._acl, ephemeral=True),
        ]
        return self._both_made(runtime, runtime.operations.multi(both))

    async def _both_made(self, runtime: Any, made: Awaitable[object]) -> None:
        try:
            await made
        except MultiError as error:
            if error.index == 1:  # of an earlier create, whose node is gone
                await self._drop_token(runtime)
            raise error._culprit from None

    async def _is_own(self, runtime: Any, stat: Stat | None) -> bool:
        if self._token:
            token = await runtime.operations.exists(self._token)
            if stat is not None and token is not None and token.czxid == stat.czxid:
                self._czxid = stat.czxid
            await self._drop_token(runtime)
        self._doubt = False
        return stat is not None and stat.czxid == self._czxid

    async def _drop_token(self, runtime: Any) -> None:
        with suppress(NoNodeError):
            await runtime.operations.delete(self._token)
        self._token = ""

    def _session_ended(self) -> None:
        self._token = ""
        super()._session_ended()


def keeper(ephemeral: bool) -> type[NodeKeeper]:
    """The class of kept nodes."""
    return NodeKeeper if check_flag("ephemeral", ephemeral) else StandingKeeper
