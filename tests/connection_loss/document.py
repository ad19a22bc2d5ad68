"""The file: tables between markers, everything else written by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parents[2] / "docs" / "connection-loss-reference.md"


def line(cells: Sequence[str]) -> str:
    """One line of a table."""
    return "| " + " | ".join(cells) + " |"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(map(line, [heads, ["---"] * len(heads), *rows]))


def lines(section: str) -> list[str]:
    """The lines of a section's tables, without heads."""
    found = [text for text in section.splitlines() if text.startswith("| ")]
    rules = [index for index, text in enumerate(found) if text.startswith("| --- ")]
    heads = {index - 1 for index in rules} | set(rules)
    return [text for index, text in enumerate(found) if index not in heads]


def by_title(section: str) -> dict[str, list[str]]:
    """The lines of the tables below each heading, by each of the titles in the heading."""
    found: dict[str, list[str]] = {}
    for part in section.split("### ")[1:]:
        heading, _, body = part.partition("\n")
        for title in heading.split("; "):
            found[title] = lines(body)
    return found


def slug(text: str) -> str:
    """Its words, for a name in a link."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def row_name(part: str, title: str, point: str) -> str:
    """How a line of a table is called in links and in the data."""
    name = f"{slug(title)}--{slug(point)}"
    return f"watch-{name}" if part == "watches" else name


def sections(text: str) -> dict[str, str]:
    """What stands between the markers, by their names."""
    found = re.findall(r"<!-- begin: ([\w-]+) -->\n(.*?)\n?<!-- end: \1 -->", text, re.DOTALL)
    return dict(found)


def replaced(text: str, made: Mapping[str, str]) -> str:
    """The document with new contents between its markers; each must have its place."""
    missing = made.keys() - sections(text).keys()
    if missing:
        raise ValueError(f"the page has no markers for: {', '.join(sorted(missing))}")
    for name, content in made.items():
        begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{content}\n{end}{rest.partition(end)[2]}"
    return text


# --- the lesson that plays a line -----------------------------------------------------------------

LESSON = "lost-reply"
_REQUESTS = {
    ("create", "ephemeral and sequential"): "--op create",
    ("create", "sequential"): "--op sequential-persistent",
    ("set_data", "with a version"): "--op set",
    ("delete", ""): "--op delete",
}
_FAULTS = {
    "not-sent": "--before",
    "request-lost": "--lost",
    "reply-lost": "",
    "session-expired": "--expire",
}


def flags_of(row: Mapping[str, Any]) -> str | None:
    """The lesson's flags for a line of the data, for a link; None if it does not play that."""
    request = _REQUESTS.get((row["call"], row["options"]))
    fault = _FAULTS.get(row["failure"])
    if row["part"] != "operations" or request is None or fault is None:
        return None
    return f"{request} {fault}".rstrip()
