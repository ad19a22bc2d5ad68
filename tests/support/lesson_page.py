"""docs/lessons.md: its table, recording and sentences, made from the lessons themselves.

`python3 -m tests.support.lesson_page` writes them.
"""

from __future__ import annotations

import io
import os
import re
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from zkwire.cli.lessons.lesson import TABLE, find
from zkwire.cli.main import main

FOLDER = Path(__file__).resolve().parents[2] / "docs"
PATH = FOLDER / "lessons.md"
_PART = re.compile(r"(?<=<!-- begin: (.{4}) -->\n).*?(?=<!-- end: \1 -->)", re.DOTALL)


class _Output(io.StringIO):
    """A standard output whose encoding has all signs."""

    encoding = "utf-8"


def output_of(*words: str) -> str:
    """What the command writes at 90 columns, without a trailing blank."""
    with patch.dict(os.environ, COLUMNS="90"), redirect_stdout(_Output()) as output:
        main(list(words))
    return output.getvalue()


def _list() -> str:
    lines = ["| lesson | minutes | | its own flags |\n| --- | --- | --- | --- |\n"]
    for name, (minutes, about) in TABLE.items():
        flags = "<br>".join(f"`{flag.name}`: {flag.does}" for flag in find(name).flags)
        lines.append(f"| `{name}` | {minutes} | {about} | {flags} |\n")
    return "".join(lines)


def _open() -> str:
    """For each lesson a link that opens it; in HTML, since the playground is a page of the site."""
    links = [f'<a href="playground.html#lesson={name}">{name}</a>' for name in TABLE]
    return f"On the site, each opens there: {', '.join(links)}.\n"


def _take() -> str:
    """A lesson whole."""
    return f"```text\n$ zkwire lesson lost-reply\n{output_of('lesson', 'lost-reply')}```\n"


def _said() -> str:
    return "".join(f"1. `{name}`: *{find(name).remember}*\n" for name in TABLE)


def written() -> str:
    """The page with these parts as they are now."""
    parts = {"list": _list, "open": _open, "take": _take, "said": _said}
    return _PART.sub(lambda part: parts[part[1]](), PATH.read_text())


def drawn(*words: str) -> str:
    """The picture of a lesson."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "lesson"
        output_of("lesson", *words, "--svg", str(file))
        return file.read_text()


if __name__ == "__main__":
    PATH.write_text(written())
