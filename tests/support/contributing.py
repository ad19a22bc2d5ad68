"""The table of packages in docs/design.md, made from their docstrings.

`python3 -m tests.support.contributing` writes it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / "docs" / "design.md"
_TABLE = re.compile("(?<=<!-- begin: rooms -->\n).*?(?=<!-- end: rooms -->)", re.DOTALL)


def first_sentence(file: Path) -> str:
    """What a module says first of itself, up to the first full stop or colon that ends a line."""
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`")


def table(rooms: list[str]) -> str:
    """A line for each room: its name, its files, what its docstring says first."""
    lines = ["| package | what it is |\n| --- | --- |\n"]
    for room in rooms:
        folder = ROOT / "zkwire" / room
        file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        if room == "zkwire":
            file = ROOT / "zkwire" / "__init__.py"
        name = f"{room}/" if folder.is_dir() else file.name
        lines.append(f"| `{name}` | {first_sentence(file)} |\n")
    return "".join(lines)


def written(rooms: list[str]) -> str:
    """The document with the table as it is now."""
    return _TABLE.sub(lambda _: table(rooms), PATH.read_text())


if __name__ == "__main__":
    from tests.unit.test_layers import ROOMS

    PATH.write_text(written(ROOMS))
