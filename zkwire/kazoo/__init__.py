"""kazoo's own client, handlers and recipes, with zkwire in place of kazoo's connection.

    from zkwire.kazoo import KazooClient

is the one line that changes in a program; :func:`install` is for programs that are not one's own,
and ``python -m zkwire.kazoo PROGRAM ARGUMENTS`` runs one after it.  Needs kazoo,
``pip install zkwire[kazoo]``, which nothing else in zkwire imports.  What is different from kazoo
stands in the documentation, in "kazoo's programs on zkwire".
"""

try:
    from kazoo.client import KazooState, KeeperState  # pyright: ignore[reportMissingTypeStubs]
except ImportError as _error:
    raise ImportError(f"zkwire.kazoo needs kazoo, `pip install zkwire[kazoo]`: {_error}") from None

from zkwire.kazoo.engine import KazooClient, install
from zkwire.kazoo.requests import NotSent, OutcomeUnknown

__all__ = ["KazooClient", "KazooState", "KeeperState", "NotSent", "OutcomeUnknown", "install"]
