"""Paths: which ones a server accepts, how a chroot is added and removed, sequence numbers.

The rules are those of ``PathUtils.validatePath`` in the Java server.  A server applies them to
writes only; here they are applied to every path, so that a mistyped path is a ValueError and not a
NoNodeError.  This module must not know operations.
"""

from __future__ import annotations

# The ensemble's configuration, outside every chroot.
CONFIG_NODE = "/zookeeper/config"

# A server counts children in a signed 32-bit number and formats it with %010d.
SEQUENCE_DIGITS = 10
LAST_SEQUENCE = 2**31 - 1


# Programs use the same paths again and again; a lookup costs a fifth of a check.  When there are
# too many, all are forgotten: paths used once, such as a lock's nodes, must not stay forever.
REMEMBERED = 1000
LONGEST_REMEMBERED = 200
_accepted: set[str] = set()


def check_path(path: str, sequential: bool = False) -> str:
    """``path`` as a plain str if a server accepts it; else TypeError or ValueError says why not.

    The path of a sequential create may end in a slash: its number becomes the name.
    """
    if path.__class__ is not str:
        if not isinstance(path, str):
            raise TypeError(f"path must be a str, not {type(path).__name__}: {path!r}")
        path = str.__str__(path)  # a member of an enumeration is formatted as its name
    if path in _accepted or path == "/":
        return path
    if not path.startswith("/"):
        raise ValueError(f"path must start with '/': {path!r}")
    checked = path + "1" if sequential else path
    if checked.endswith("/"):
        raise ValueError(f"path must not end with '/': {path!r}")
    if "//" in checked:
        raise ValueError(f"path must not contain an empty name: {path!r}")
    if "/." in checked and any(name in {".", ".."} for name in checked.split("/")):
        raise ValueError(f"path must not contain '.' or '..' as a name: {path!r}")
    if not (checked.isascii() and checked.isprintable()):
        check_characters("path", path)
    if not sequential and len(path) <= LONGEST_REMEMBERED:
        if len(_accepted) >= REMEMBERED:
            _accepted.clear()
        _accepted.add(path)
    return path


def check_characters(what: str, text: str) -> None:
    """Raise ValueError if a server accepts no path with this text in it; ``what`` it is."""
    for index, character in enumerate(text):
        code = ord(character)
        if (
            code <= 0x1F
            or 0x7F <= code <= 0x9F
            or 0xD800 <= code <= 0xF8FF
            or code >= 0xFFF0  # and beyond the basic plane, which Java sees as surrogates
        ):
            raise ValueError(
                f"{what} has the forbidden character U+{code:04X} at {index}: {text!r}"
            )


def check_chroot(chroot: str) -> str:
    """A chroot as the prefix of paths: "" for none."""
    return "" if chroot in {"", "/"} else check_path(chroot)


def join(chroot: str, path: str, sequential: bool = False) -> str:
    """The server's name for the client's ``path``; if sequential, the number is appended to it."""
    if not chroot:
        return path
    return chroot if path == "/" and not sequential else chroot + path


def strip(chroot: str, path: str) -> str:
    """The client's name for the server's ``path``; a path outside the chroot stays as it is."""
    if not chroot or not path.startswith(chroot):
        return path
    rest = path[len(chroot) :]
    if rest == "":
        return "/"
    return rest if rest.startswith("/") else path


def check_below_root(path: str, what: str) -> str:
    """``path`` if it is one and not the root, which cannot be ``what`` is wanted."""
    if path == "/":
        raise ValueError(f"the root cannot be {what}")
    return check_path(path)


def parent(path: str) -> str:
    """The path of the parent; "/" for "/"."""
    return path[: path.rindex("/")] or "/"


def sequence_number(name: str) -> int | None:
    """The number that a sequential create has appended to ``name``; None if there is none.

    Digits of other scripts, which ``str.isdigit`` accepts, are no sequence number.
    """
    digits = name[-SEQUENCE_DIGITS:]
    if len(digits) == SEQUENCE_DIGITS and digits.isascii() and digits.isdigit():
        return int(digits)
    return None
