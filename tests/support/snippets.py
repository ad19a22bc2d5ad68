"""The Python programs in the documents, as a reader copies them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
HOSTS = "127.0.0.1:2181"
"""The server of all pages."""

FENCE = re.compile(r"^```py(?:thon)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
GOES_ON = re.compile(r"(goes on with|with the) (program|class) above", re.IGNORECASE)
"""What the sentence before a block says if it needs the block before it."""

PROGRAMS = "docs/supervisor.md"
"""The page that gives imports and what is yours once, for the five short programs below them."""


class Snippet(NamedTuple):
    """One block: the file, the line of its first statement, and the code, with what it goes on."""

    page: str
    line: int
    code: str
    alone: bool

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str, hosts: str = HOSTS) -> list[str]:
    """The blocks of a page (of docs/, or a file) that are whole: they say ``python``."""
    text = (ROOT / (page if page.endswith(".md") else f"docs/{page}.md")).read_text()
    found = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [str(block).replace(HOSTS, hosts) for block in found]


def documents() -> list[Path]:
    """All pages that readers copy from."""
    names = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md")
    return [*(ROOT / name for name in names), *sorted((ROOT / "docs").rglob("*.md"))]


def snippets() -> Iterator[Snippet]:
    """Each block of each page."""
    for path in documents():
        page, text = str(path.relative_to(ROOT)), path.read_text()
        before, given = "", ""
        for match in FENCE.finditer(text):
            code, line = match[1], text.count("\n", 0, match.start()) + 2
            words = " ".join(text[: match.start()].split())[-160:]
            if page == PROGRAMS and "yours to write" in code:
                given = code
            goes_on = GOES_ON.search(words) is not None
            lead = before if goes_on else given if given and given != code else ""
            yield Snippet(page, line, lead + code, alone=not goes_on)
            before = code


def run_python(
    *arguments: object, cwd: Path = ROOT, env: dict[str, str] | None = None, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """What a Python with these arguments has printed, and how it has ended."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        input=given,
        capture_output=True,
        cwd=cwd,
        env=env,
        text=True,
        timeout=60.0,
        check=False,
    )
