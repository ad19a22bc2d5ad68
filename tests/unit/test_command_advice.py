"""What the command says in place of the library's advice: a flag, not a call or an argument."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

import zkwire
from zkwire.cli.output import WORDS, in_flags
from zkwire.errors import REJECTIONS, SERVER_ERRORS, error_for
from zkwire.session import outcomes

LIBRARY = re.compile(r"\w\(|=\.\.\.|=\[|=True|add_auth|\bClient\b")


def messages() -> Iterator[str]:
    """Each text in the library, with {} for what it is filled with."""
    root = Path(zkwire.__file__).parent
    for file in [root / "errors.py", *root.glob("session/*.py"), *root.glob("net/*.py")]:
        yield from texts(ast.parse(file.read_text()))
    yield from texts(ast.parse((root / "operations" / "nodes.py").read_text()))


def texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("words", WORDS)
def test_advice_that_is_replaced_is_what_the_library_says(words: str) -> None:
    """Else the library says it in other words now, and so should WORDS in zkwire/cli/output.py."""
    assert any(re.search(words, message) for message in messages())


@pytest.mark.parametrize("code", [*SERVER_ERRORS, *REJECTIONS, -112, -999])
def test_a_refusal_advises_flags_alone(code: int) -> None:
    for op, path in product(("create", "get_data", "delete", "multi"), ("/", "/a", "/a/b")):
        assert LIBRARY.search(in_flags(str(error_for(code, op, path)))) is None


def test_an_end_of_the_session_advises_flags_alone() -> None:
    ends = [words for _, words in outcomes.TERMINAL.values()]
    for words in (*ends, outcomes.NOT_RESUMED, outcomes.UNGREETED, outcomes.SILENT):
        assert LIBRARY.search(in_flags(words)) is None


def test_other_words_stay_as_they_are() -> None:
    assert in_flags("create /ttl must: The node exists already.").startswith("create /ttl must: ")
    longer = "session_timeout must be 1, not 9; for a longer session, x: timedelta(seconds=9)"
    assert in_flags(longer) == "--session-timeout must be 1, not 9"
