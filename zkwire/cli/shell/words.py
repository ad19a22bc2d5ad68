"""A line of the shell as words: quotes and backslashes as in sh, ``;`` between commands, ``#``.

A ``#`` begins a comment at the beginning of a word alone, so it may stand inside of a path.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""(?P<comment> \#.* ) | (?P<end> ; ) |
    (?P<word> (?: [^\s'"\\;] | \\. | '[^']*' | "(?:\\.|[^"\\])*" )+ )""",
    re.VERBOSE | re.DOTALL,
)
_PART = re.compile(r"""\\(.)|'([^']*)'|"((?:\\.|[^"\\])*)"|([^\\'"]+)""", re.DOTALL)
_SPECIAL = re.compile(r"([\s'\"\\;])")


def commands_of(line: str) -> list[list[str]]:
    """The commands of a line, each as its words; ValueError for a quote without its end."""
    commands, _ = _scan(line)
    return [words for words in commands if words]


def _scan(line: str) -> tuple[list[list[str]], bool]:
    """The commands, empty ones too, and whether the line ends inside of a word."""
    commands: list[list[str]] = [[]]
    place, inside = 0, False
    while place < len(line):
        if line[place].isspace():
            place, inside = place + 1, False
            continue
        token = _TOKEN.match(line, place)
        if token is None:
            raise ValueError(f"there is no end to what {line[place]!r} begins")
        place, inside = token.end(), bool(token["word"])
        if token["end"]:
            commands.append([])
        elif token["word"]:
            commands[-1].append(_unquoted(token["word"]))
    return commands, inside


def _unquoted(word: str) -> str:
    return "".join(
        escaped or single or re.sub(r'\\(["\\])', r"\1", double) or plain
        for escaped, single, double, plain in _PART.findall(word)
    )


def quoted(word: str) -> str:
    """The word as it has to be typed."""
    return _SPECIAL.sub(r"\\\1", word)


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
