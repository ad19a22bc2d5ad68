"""The fault proxy: it stands between a client and a server and does what networks do to a request.

This package exports the proxy, its actions, and the opcodes by operation (``OPCODES``).
"""

# fmt: off
# isort: off
from zkwire.testing.proxy.faults import (
    Action, Gate, black_hole, cut_after, cut_before, delay, delay_reply, drip, drop, duplicate,
    forward, half_close, hold, rewrite, rst_after, rst_before, split, truncate,
)
from zkwire.testing.proxy.frames import OPCODES, Frame
from zkwire.testing.proxy.proxy import FaultProxy, Rule

__all__ = [
    "OPCODES", "Action", "FaultProxy", "Frame", "Gate", "Rule", "black_hole", "cut_after",
    "cut_before", "delay", "delay_reply", "drip", "drop", "duplicate", "forward", "half_close",
    "hold", "rewrite", "rst_after", "rst_before", "split", "truncate",
]
