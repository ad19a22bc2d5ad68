"""The state machine: bytes and the time in, bytes and deadlines out.

What an I/O layer needs to drive it is importable from here, and documented in docs/core.md.
"""

from zkwire.session.hosts import HostList, parse_hosts
from zkwire.session.request import Request
from zkwire.session.session import Session
from zkwire.session.states import StateWait
from zkwire.session.waitable import Waitable, Watch
from zkwire.wire.model import State

__all__ = [
    "HostList",
    "Request",
    "Session",
    "State",
    "StateWait",
    "Waitable",
    "Watch",
    "parse_hosts",
]
