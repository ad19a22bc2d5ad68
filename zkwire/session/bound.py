"""What belongs to one session, or to a supervisor, of one process, and so cannot be copied.

The copy of a client would be a second owner of its connection, and the end of either would end the
session; the copy of a lock would say that it is held when the lock has been released.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Never


class Bound:
    """What refuses to be copied or pickled: a client, and what is made with one."""

    __slots__ = ()

    def __reduce__(self) -> Never:
        raise TypeError(
            f"{type(self).__name__} cannot be copied or pickled: it belongs to this process. Give "
            "another process the hosts, to make a client of its own there; to hand a session over, "
            "give it also the credentials that detach() returns, for Client(hosts, resume=...)"
        )
