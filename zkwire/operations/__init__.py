"""Every operation once: arguments checked, request encoded, reply turned into a result.

The blocking client, its pipeline and the asyncio client have these operations, with the same names
and arguments.  This package decides what a wrong argument is (TypeError or ValueError, before
anything is sent) and what an operation means to its caller.  It must not know how a request travels
or how a caller waits.

Each docstring says what the operation does and which watch it leaves, with which errors the server
refuses it, what a lost connection means and what is safe to do next, and what a time limit or a
cancellation leaves.  For every operation holds:

* *Order.*  Requests are sent in the order in which the operations are called, pipelined and asyncio
  ones too, and take effect in that order.  A read is answered by the connected server, which may be
  behind others; a :meth:`~zkwire.operations.nodes.Nodes.sync` before it brings that up to date.
* *Lost connection.*  ``NotSentError``: it is not executed; repeating it is safe.
  ``OutcomeUnknownError``: it may have been executed, or be executed within a moment; the docstring
  says what is safe.  A read is always safe to repeat.
* *End of the session.*  ``SessionExpiredError``, ``AuthFailedError``, ``ClientClosedError``: this
  client is of no further use.
* *Time limit, interrupt, cancellation.*  A request that has not been sent is withdrawn and never
  executed.  One that has been sent is still executed, in its place in the order; its answer is
  dropped.  ``OperationTimeoutError.maybe_applied`` tells the two apart.
* *Unknown operation.*  A server that is older than an operation refuses it with UnimplementedError
  and closes the connection; the client reconnects, and the session continues.  Requests sent just
  before or behind it may end in OutcomeUnknownError.  Until that next connection ends, the client
  refuses the operation itself.

Times are in seconds (``float``), data and secrets are ``bytes``, paths are ``str``.
"""

from zkwire.operations.admin import Admin
from zkwire.operations.multi import Multi
from zkwire.operations.nodes import Nodes
from zkwire.operations.watches import Watches

TYPE_CHECKING = bool()
if TYPE_CHECKING:
    from zkwire.operations.base import AnyWatch as AnyWatch
    from zkwire.operations.base import Reply as Reply


class Operations(Nodes, Multi, Watches, Admin):
    """The operations, as calls that return at once; see the module's docstring."""
