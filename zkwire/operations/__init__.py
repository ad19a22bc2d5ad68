"""Every operation once: arguments checked, request encoded, reply turned into a result.

The blocking client, its pipeline and the asyncio client offer these operations under the same names
with the same arguments.  This package decides what a wrong argument is (TypeError or ValueError,
before anything is sent) and what an operation means to its caller.

What holds for every operation:

* Requests are sent in the order of the calls, and a client sees their effects in that order.  A
  read may be served by a server that is behind others; put a :meth:`~Operations.sync` before it
  when it must show what somebody else has finished.
* ``NotSentError``: it was not executed, repeat it freely.  ``OutcomeUnknownError``: it may have
  been; each operation says what to do.  ``SessionExpiredError`` and ``ClientClosedError``: nothing
  works any more with this client.
* A time limit, an interrupt, and the cancellation of the last await take a request back that has
  not been sent; one that has been is still executed, in its place in the order.
* A server that is older than an operation refuses it with UnimplementedError and closes the
  connection; the client connects again by itself, and the session goes on.  What was sent just
  before or behind it may end in OutcomeUnknownError.  Asked again, the client refuses it by itself
  until it loses that next connection.
"""

from zkwire.operations.admin import Admin
from zkwire.operations.multi import Multi
from zkwire.operations.nodes import Nodes
from zkwire.operations.watches import Watches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.operations.base import AnyWatch as AnyWatch
    from zkwire.operations.base import Reply as Reply


class Operations(Nodes, Multi, Watches, Admin):
    """The operations, as calls that return at once; see the module's docstring."""
