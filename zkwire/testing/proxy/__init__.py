"""The fault proxy: between any client and server, it does to a chosen request what networks do.

The proxy, its actions, and the names of the operations (``OPCODES``).
"""

from zkwire.testing.proxy.faults import (
    Action,
    Gate,
    black_hole,
    cut_after,
    cut_before,
    delay,
    delay_reply,
    drip,
    drop,
    duplicate,
    forward,
    half_close,
    hold,
    rewrite,
    rst_after,
    rst_before,
    split,
    truncate,
)
from zkwire.testing.proxy.frames import (
    OPCODES,
    Frame,
)
from zkwire.testing.proxy.proxy import (
    FaultProxy,
    Rule,
)

__all__ = [
    "OPCODES",
    "Action",
    "FaultProxy",
    "Frame",
    "Gate",
    "Rule",
    "black_hole",
    "cut_after",
    "cut_before",
    "delay",
    "delay_reply",
    "drip",
    "drop",
    "duplicate",
    "forward",
    "half_close",
    "hold",
    "rewrite",
    "rst_after",
    "rst_before",
    "split",
    "truncate",
]
