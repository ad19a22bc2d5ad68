"""A transaction of either client: the operations of a multi, collected one by one, sent once."""

from __future__ import annotations

from zkwire.jute.frames import SEND_LIMIT
from zkwire.operations.multi import WRITES, Recorder
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from zkwire.jute.records import ACL
    from zkwire.session.request import Request


class TransactionBase(Recorder):
    """The operations of a multi, collected one by one; ``results`` once it has been executed.

    It is sent once: to repeat it after a lost connection, begin a new one.
    """

    def __init__(
        self,
        chroot: str,
        acl: Sequence[ACL] = OPEN_ACL_UNSAFE,
        send_limit: int = SEND_LIMIT,
    ) -> None:
        super().__init__(chroot, WRITES, acl, send_limit)
        self.results: list[Any] = []
        self._committed = False

    def _submit(self, request: Request) -> Any:
        self._refuse_if_committed()
        return super()._submit(request)

    def _sent_by(self, operations: Any) -> Any:
        self._refuse_if_committed()
        self._committed = True
        return operations._send_multi(ops.MULTI, self)

    def _refuse_if_committed(self) -> None:
        if self._committed:
            raise RuntimeError("this transaction has been committed: begin a new one")
