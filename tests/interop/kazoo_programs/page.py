"""The page of kazoo's programs, and its parts that are written."""

from __future__ import annotations

from tests.check.environment import ROOT

PAGE = ROOT / "docs" / "how-to" / "kazoo-programs.md"


def page_with(part: str, lines: str) -> str:
    """The page, with these lines as one of its parts."""
    before, begin, rest = PAGE.read_text().partition(f"<!-- begin: {part} -->\n")
    _, end, after = rest.partition(f"<!-- end: {part} -->")
    return before + begin + lines + end + after
