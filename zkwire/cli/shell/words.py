"""A line of the shell as words: quotes and backslashes as in sh, ``;`` between commands, ``#``.

A ``#`` begins a comment at the beginning of a word alone, so it may stand inside of a path.  What a
quote or a backslash begins may end in another line, as in sh.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_TOKEN = re.compile(
    r"""(?P<comment> \#.* ) | (?P<end> ; ) |
    (?P<word> (?: [^\s'"\\;] | \\. | '[^']*' | "(?:\\.|[^"\\])*" )+ )""",
    re.VERBOSE | re.DOTALL,
)
_PART = re.compile(r"""\\(.)|'([^']*)'|"((?:\\.|[^"\\])*)"|([^\\'"]+)""", re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\\n])')
_SPECIAL = re.compile(r"[\s'\"\\;]")


class UnendedError(ValueError):
    """A quote or a backslash, ``mark``, has no end in the line: another line has it."""

    def __init__(self, mark: str) -> None:
        super().__init__(f"the line ends with {mark!r} still open")
        self.mark = mark


def commands_of(line: str) -> list[list[str]]:
    """The commands of a line, each as its words; UnendedError for a quote without its end."""
    commands, _ = _scan(line)
    return [words for words in commands if words]


def whole_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The lines, joined where a quote or a backslash asks for it, and the number of the first."""
    begun, text, mark = 0, "", ""
    for number, line in enumerate(lines, 1):
        begun, text = (begun, f"{text}\n{line}") if mark else (number, line)
        if mark in ("", "\\") or mark in line:  # else all the text is in this quote
            mark = mark_left(text)
        if not mark:
            yield begun, text
    if mark:
        yield begun, text


def mark_left(text: str) -> str:
    """The quote or the backslash that has no end in the text; "" if there is none."""
    try:
        _scan(text)
    except UnendedError as error:
        return error.mark
    return ""


def _scan(line: str) -> tuple[list[list[str]], bool]:
    """The commands, empty ones too, and whether the line ends inside of a word."""
    commands: list[list[str]] = [[]]
    place, inside = 0, False
    while place < len(line):
        if line[place].isspace() or line.startswith("\\\n", place):
            place, inside = place + 1 + (line[place] == "\\"), False
            continue
        token = _TOKEN.match(line, place)
        if token is None:
            raise UnendedError(line[place])
        place, inside = token.end(), bool(token["word"])
        if token["end"]:
            commands.append([])
        elif token["word"]:
            commands[-1].append(_unquoted(token["word"]))
    return commands, inside


def _unquoted(word: str) -> str:
    return "".join(
        escaped.strip("\n") or single or _ESCAPED.sub(_kept, double) or plain
        for escaped, single, double, plain in _PART.findall(word)
    )


def _kept(escaped: re.Match[str]) -> str:
    """What a backslash in double quotes leaves: of a line end nothing, as in sh."""
    return escaped[1].strip("\n")


def quoted(word: str) -> str:
    """The word as it has to be typed."""
    return _SPECIAL.sub(lambda found: "'\n'" if found[0] == "\n" else f"\\{found[0]}", word)


def unfinished(line: str) -> tuple[list[str], str]:
    """For completion: the words of the last command of a line, and the word that is being typed.

    The last word is as typed so far, without a quote that it begins with.
    """
    for quote in ("", "'", '"'):
        try:
            commands, inside = _scan(line + quote)
        except ValueError:
            continue
        *words, last = commands[-1] if inside else [*commands[-1], ""]
        return words, last
    return [], ""


# --- aliases --------------------------------------------------------------------------------------
# zkCli's names for commands, and its ways to write arguments, as words of our own commands.
#
# A table, so that there is one implementation of each command.  What a name means here is what it
# means in ZooKeeper's own shell; where ours has the same name and means more, it is not in the
# table.

# zkCli's name, and ours for the same.
NAMES: dict[str, tuple[str, ...]] = {
    "delete": ("rm",),
    "deleteall": ("rm", "-r"),
    "rmr": ("rm", "-r"),
    "ls2": ("ls", "-s"),
    "getAcl": ("acl", "get"),
    "setAcl": ("acl", "set"),
    "getEphemerals": ("ephemerals",),
    "getAllChildrenNumber": ("count",),
    "setquota": ("quota", "set"),
    "listquota": ("quota", "get"),
    "delquota": ("quota", "del"),
    "exit": ("quit",),
}
LIMITS = frozenset({"-n", "-b", "-N", "-B"})
_VALUED = frozenset({"-t", "--ttl", "--acl", "--data-file"})
# A second word of theirs is no path: `delete PATH VERSION` is that of ZooKeeper 3.4.
ONE_PATH = frozenset({"delete", "deleteall", "rmr"})


def translate(words: list[str]) -> list[str]:
    """The words of our command for those of zkCli's; others are returned as they are."""
    name, *rest = words
    if name == "get":
        rest = [{"-x": "--hex", "-b": "--base64"}.get(word, word) for word in rest]
    if name == "create":
        rest = _create(rest)
    if name in ONE_PATH:
        rest = _delete(name, rest)
    if name == "delquota" and (limits := [word for word in rest if word in LIMITS]):
        others = [word for word in rest if word not in LIMITS]
        return ["quota", "set", *others, *(word for limit in limits for word in (limit, "none"))]
    return [*NAMES.get(name, (name,)), *rest]


def _delete(name: str, words: list[str]) -> list[str]:
    """``PATH VERSION`` with ``-v``; ValueError for a second word that is no version."""
    plain = [word for word in words if not word.startswith("-") or word == "-1"]
    if "-v" in words or len(plain) < 2:
        return words
    path, version, *more = plain
    if more or name != "delete" or not (version.isdecimal() or version == "-1"):
        raise ValueError(f"{name} takes one PATH{' and a version' * (name == 'delete')}")
    flags = [word for word in words if word not in plain]
    return [*flags, path, *(["-v", version] if version != "-1" else [])]


def _create(words: list[str]) -> list[str]:
    """``create PATH DATA ACL``: the third word that is no flag is an access list."""
    translated: list[str] = []
    plain, valued = 0, False
    for word in words:
        plain += not valued and (not word.startswith("-") or word == "-")
        if plain == 3 and "--acl" not in words:
            translated.append("--acl")
            plain += 1
        valued = word in _VALUED
        translated.append(word)
    return translated
