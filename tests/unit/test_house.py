"""No file is long, examples in docstrings are code, and the map shows the layers as they are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.support import contributing
from tests.unit.test_layers import LAYERS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "zkwire"

FILE = 700  # lines of any file, with its prose


def test_no_file_is_long() -> None:
    lengths = {
        str(file.relative_to(PACKAGE)): len(file.read_text().splitlines())
        for file in PACKAGE.rglob("*.py")
        if "Written by `tools/" not in file.read_text()
    }
    assert {name: length for name, length in lengths.items() if length > FILE} == {}


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


def test_the_map_shows_the_layers_as_they_are() -> None:
    """Else: python3 -m tests.support.contributing."""
    assert contributing.written(LAYERS) == contributing.PATH.read_text()
