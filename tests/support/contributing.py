"""The table of packages in docs/design.md, made from their docstrings.

`python3 -m tests.support.contributing` writes it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / "docs" / "design.md"
_TABLE = re.compile("(?<=<!-- begin: layers -->\n).*?(?=<!-- end: layers -->)", re.DOTALL)


def first_sentence(file: Path) -> str:
    """What a module says first of itself, up to the first full stop or colon that ends a line."""
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`")


def table(layers: list[str]) -> str:
    """A line for each layer: its name, its files, what its docstring says first."""
    lines = ["| package | what it is |\n| --- | --- |\n"]
    for layer in layers:
        folder = ROOT / "zkwire" / layer
        file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        if layer == "zkwire":
            file = ROOT / "zkwire" / "__init__.py"
        name = f"{layer}/" if folder.is_dir() else file.name
        lines.append(f"| `{name}` | {first_sentence(file)} |\n")
    return "".join(lines)


def written(layers: list[str]) -> str:
    """The document with the table as it is now."""
    return _TABLE.sub(lambda _: table(layers), PATH.read_text())


if __name__ == "__main__":
    from tests.unit.test_layers import LAYERS

    PATH.write_text(written(LAYERS))
