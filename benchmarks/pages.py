"""What the programs here share: the memory of a process, the machine's facts, tables in pages."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "benchmarks" / "README.md"


def resident() -> int:
    """Resident bytes of this process; 0 where the kernel does not say."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def this_machine() -> dict[str, str]:
    """What figures depend on, the load of the machine included."""
    facts = {
        "Python": platform.python_version(),
        "system": f"{platform.system()} on {platform.machine()}",
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.0f}",
    }
    with suppress(PackageNotFoundError):
        facts["kazoo"] = version("kazoo")
    return facts


def preface(server: str, more: str = "") -> str:
    """The line before a table."""
    facts = "; ".join(f"{what} {value}" for what, value in this_machine().items())
    return f"{facts}; ZooKeeper {server}.{f' {more}' if more else ''}"


def number(value: float | None) -> str:
    """Three digits that count; empty without a value."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Lines of Markdown; all columns but the first hold numbers."""
    heads = list(head)
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def marks(command: str) -> tuple[str, str]:
    """The lines in a page between which a command writes."""
    return f"<!-- written by `python3 -m {command}` -->\n", f"<!-- end of `{command}` -->\n"


def parts(command: str, page: Path = README) -> tuple[str, str, str]:
    """What is before, within and behind a command's part of a page; ValueError without one."""
    begin, end = marks(command)
    before, begins, rest = page.read_text().partition(begin)
    found, ends, behind = rest.partition(end)
    if not (begins and ends):
        raise ValueError(f"{page} has no place for {command}: no line {begin!r} or {end!r}")
    return before + begin, found.strip("\n"), end + behind


def write(command: str, text: str, page: Path = README) -> None:
    """Put the text in the place of what the command wrote before."""
    before, _, behind = parts(command, page)
    page.write_text(f"{before}\n{text}\n\n{behind}")
