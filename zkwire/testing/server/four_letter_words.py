"""Four-letter words: the commands that a probe sends in place of a first frame.

Decides which words are answered and how.  Words that clients, tests and probes use get their
answer; the others get the text of ``FourLetterCommands`` of 3.8 for a word that is not allowed.
"""

from __future__ import annotations

from typing import Final

from zkwire.testing.server.state import ServerState

READ_ONLY: Final = "read-only"  # the mode of a server without a quorum

_KNOWN: Final = frozenset(
    b"conf cons crst dirs dump envi gtmk hash isro mntr ruok srst srvr stat stmk "
    b"wchc wchp wchs".split()
)

# The names that a Java process lists for envi, after the version.
ENVIRONMENT: Final = (
    *("host.name", "java.version", "java.vendor", "java.home", "java.class.path"),
    *("java.library.path", "java.io.tmpdir", "java.compiler", "os.name", "os.arch", "os.version"),
    *("user.name", "user.home", "user.dir", "os.memory.free", "os.memory.max", "os.memory.total"),
)


def answer(word: bytes, state: ServerState, mode: str, connections: int) -> bytes | None:
    """The text for a word; None for other bytes, which then are the length of a frame."""
    if word not in _KNOWN:
        return None
    match word:
        case b"ruok":
            return b"imok"
        case b"isro":
            return b"ro" if mode == READ_ONLY else b"rw"
        case b"srvr":
            return _srvr(state, mode, connections)
        case b"envi":
            lines = ["Environment:", f"zookeeper.version={_version(state)}"]
            lines += [f"{name}=<NA>" for name in ENVIRONMENT]
            return "".join(line + "\n" for line in lines).encode()
        case _:
            return word + b" is not executed because it is not in the whitelist.\n"


def _version(state: ServerState) -> str:
    return f"{state.rules.version}.0-zkwire embedded, for tests only"


def _srvr(state: ServerState, mode: str, connections: int) -> bytes:
    lines = {
        "Zookeeper version": _version(state),
        "Latency min/avg/max": "0/0.0/0",
        "Received": "0",
        "Sent": "0",
        "Connections": str(connections),
        "Outstanding": "0",
        "Zxid": f"{state.tree.zxid:#x}",
        "Mode": mode,
        # A real tree counts its root twice, as "" and as "/".
        "Node count": str(len(state.tree.nodes) + 1),
    }
    return "".join(f"{name}: {value}\n" for name, value in lines.items()).encode()
