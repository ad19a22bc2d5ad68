"""How an entry of an access list is written: ``scheme:id:perms``, as ``zkCli.sh`` takes it.

An id may have colons, a scheme has none.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire import ACL

LETTERS = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}  # in the order of ZooKeeper's own tools


def entry_text(entry: ACL) -> str:
    """An entry in words."""
    perms = "".join(letter for letter, bit in LETTERS.items() if entry.perms & bit)
    return f"{entry.id.scheme}:{entry.id.id}:{perms}"


def entry_of(text: str) -> ACL:
    """The opposite of :func:`entry_text`; ValueError if it is none."""
    from zkwire import ACL, Id

    scheme, _, rest = text.partition(":")
    name, colon, letters = rest.rpartition(":")
    if not (scheme and colon and set(letters) <= set(LETTERS)):
        raise ValueError(
            f"{text!r} is no entry of an access list: SCHEME:ID:PERMS with PERMS of the letters "
            "cdrwa"
        )
    return ACL(sum(LETTERS[letter] for letter in set(letters)), Id(scheme, name))
