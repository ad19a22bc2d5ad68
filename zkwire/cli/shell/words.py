"""A line of the shell as words: quotes and backslashes as in sh, ``;`` between commands, ``#``.

A ``#`` begins a comment at the beginning of a word alone, so it may stand inside of a path.  What a
quote or a backslash begins may end in another line, as in sh.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
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
        super().__init__(f"there is no end to what {mark!r} begins")
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
