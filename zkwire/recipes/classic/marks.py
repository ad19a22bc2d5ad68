"""The marks of one object, which are used again: one for each call that is under way.

Those that lie idle are deleted some milliseconds after the last call.
"""

from __future__ import annotations

from zkwire.errors import ZooKeeperError
from zkwire.recipes.classic.once import Mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL
    from zkwire.recipes.runtime import Runtime

USES = 1_000_000
"""Of one mark: a version has 31 bits."""


class Marks:
    """See the module's docstring."""

    def __init__(
        self, runtime: Runtime, folder: str, kept: str, acl: Sequence[ACL] | None = None
    ) -> None:
        self._runtime = runtime
        self._arguments = runtime, folder, kept, acl
        self._idle: list[Mark] = []

    def lend(self) -> Mark:
        """A mark that no other call uses; ``give_back`` is to follow."""
        try:
            return self._idle.pop()
        except IndexError:
            return Mark(*self._arguments)

    def give_back(self, mark: Mark) -> None:
        try:
            self._runtime.check_open()
        except ZooKeeperError:
            mark.discard()  # it has gone with the session
            return
        if mark._version > USES:
            mark.discard()
        elif mark._owned:
            self._idle.append(mark)
            self._runtime.defer(self._tidy)

    def _tidy(self) -> None:
        while self._idle:
            try:
                mark = self._idle.pop()
            except IndexError:  # lent to another thread
                return
            mark.discard()
