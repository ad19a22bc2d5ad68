"""The rows of docs/how-to/from-kazoo.md: `from_kazoo.toml` has them, the page shows them.

`python3 -m tests.real.kazoo_page` writes the tables of the page anew.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROWS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("from_kazoo.toml").read_text())
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "from-kazoo.md"
PARTS = ("differs", "calls", "around", "later", "options", "recipes")
SIDES = ("kazoo", "zkwire")


def cell(row: dict[str, Any], side: str) -> str:
    """The code of one side, and what it gives."""
    code = row[side].replace("|", "\\|")
    gives = row.get("gives", {}).get(side)
    if gives is None:
        return f"`{code}`"
    kind, _, name = gives.partition(" ")
    return f"`{code}` raises `{name}`" if kind == "raises" else f"`{code}` is `{gives}`"


def table(lines: list[tuple[str, ...]]) -> str:
    head = [("kazoo", "zkwire", "otherwise"), ("---", "---", "---")]
    return "\n".join("| " + " | ".join(line).rstrip() + " |" for line in (*head, *lines))


def tables() -> dict[str, str]:
    """The text of each table."""
    found = {
        part: table(
            [(*(cell(row, side) for side in SIDES), row.get("note", "")) for row in ROWS[part]]
        )
        for part in PARTS
    }
    pairs = ROWS["exceptions"].items()
    found["exceptions"] = table([(f"`{k}`", f"`{z}`", note) for k, (z, note) in pairs])
    return found


def page() -> str:
    """The page with the tables as they are to be."""
    text = PAGE.read_text()
    for part, lines in tables().items():
        begin, end = f"<!-- begin: {part} -->\n", f"<!-- end: {part} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}{lines}\n{end}{rest.split(end)[1]}"
    return re.sub(r" +\|$", " |", text, flags=re.MULTILINE)


if __name__ == "__main__":
    PAGE.write_text(page())
