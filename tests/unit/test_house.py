"""The house stays as small and as plain of speech as it is: budgets, words, the map of rooms."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

from tests.support import contributing
from tests.unit.test_layers import ROOMS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "zkwire"

# Lines of code that a room may have.  A feature may raise its room's budget, nothing else.
BUDGET = {
    "errors": 149, "jute": 679, "wire": 289, "session": 2210, "operations": 499, "recipes": 5309,
    "net": 2052, "blocking": 1803, "aio": 1212, "zkwire": 153,
}  # fmt: skip
RECIPE = 155  # a recipe's file; a new recipe should do with 120
FILE = 400  # lines of any file, with its prose
LONGER = {"net/driver.py": 420}

NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """How many lines have a token that is neither comment nor docstring."""
    prose = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if ast.get_docstring(node) is not None and first is not None:
                prose.update(range(first.lineno, (first.end_lineno or 0) + 1))
    code = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - prose)


def files_of(room: str) -> list[Path]:
    if room == "zkwire":
        return [PACKAGE / "__init__.py"]
    folder = PACKAGE / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


def test_a_line_of_code_is_one_with_code() -> None:
    prose = '"""Prose.\n\nMore."""\n\n# a comment\n'
    source = prose + 'x = (1,\n     2)\n\n\ndef f():\n    """Prose."""\n    return x\n'
    assert code_lines(source) == 4


@pytest.mark.parametrize("room", BUDGET)
def test_a_room_keeps_its_budget(room: str) -> None:
    lines = sum(code_lines(file.read_text()) for file in files_of(room))
    assert lines <= BUDGET[room], f"{room} has {lines} lines of code"


def test_no_recipe_is_long() -> None:
    long = {f.name: n for f in files_of("recipes") if (n := code_lines(f.read_text())) > RECIPE}
    assert long == {}


def test_no_file_is_long() -> None:
    lengths = {
        str(file.relative_to(PACKAGE)): len(file.read_text().splitlines())
        for file in PACKAGE.rglob("*.py")
    }
    assert {n: k for n, k in lengths.items() if k > LONGER.get(n, FILE)} == {}


# Words that the glossary has replaced, and pronouns for things and programs.
OLD = (
    "AsyncPump AsyncWorld Audience BlockingWorld Bodied ClientWorld Entered Exchange Following "
    "InOtherHandsError LINGER LockCore Locking Onlooker Pump Roles SecureLink SequentialLockCore "
    "Verbs Watching abandon_process bury endings give_up pump pumps shortly take_wakeups verbs "
    "wakeups"
)
PRONOUNS = "anybody he him his nobody somebody someone who whoever whom"
DOCUMENTS = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


@pytest.mark.parametrize("words", [OLD, PRONOUNS], ids=["old names", "pronouns"])
def test_every_thing_has_the_name_of_the_field(words: str) -> None:
    # `who` is a command, as with Unix.
    banned = re.compile(rf"""(?<!zkwire )(?<!")\b({"|".join(words.split())})\b""")
    found = [
        f"{file.relative_to(ROOT)}:{number}: {match[1]}"
        for file in [*sorted(PACKAGE.rglob("*.py")), *DOCUMENTS]
        for number, line in enumerate(file.read_text().splitlines(), 1)
        for match in banned.finditer(line)
    ]
    assert found == []


def test_an_example_in_a_docstring_is_indented() -> None:
    """What is not is a paragraph of prose in the pages of the API."""
    code = re.compile(r"^(async |with .*:$|for .*:$|if .*:$|await |\w+ = )", re.MULTILINE)
    found = [
        f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and code.search(ast.get_docstring(node) or "")
    ]
    assert found == []


def test_the_map_shows_the_rooms_as_they_are() -> None:
    """Else: python3 -m tests.support.contributing."""
    assert contributing.written(ROOMS) == contributing.PATH.read_text()
