"""``python3 -m tests.support.pypi_readme``: README.md with the links that its text on PyPI needs.

PyPI shows README.md without its folder, so a relative link leads nowhere there.  With an address of
the project, ``Source`` in ``[project.urls]``, each becomes one to the files of this version there.
That is for a checkout from which a release is built, and not to be committed.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import zkwire

ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(\s*([^)\s]+)\s*\)")


def absolute(text: str, source: str) -> str:
    """``text`` with absolute links to the files of this version below ``source``."""
    base = f"{source.rstrip('/')}/blob/v{zkwire.__version__}/"
    code = [found.span() for found in CODE.finditer(text)]

    def link(found: re.Match[str]) -> str:
        target = found[1]
        inside = any(begin <= found.start() < end for begin, end in code)
        if inside or "://" in target or target.startswith("#"):
            return found[0]
        return f"]({base}{target}{'?raw=true' * target.endswith(('.svg', '.png'))})"

    return LINK.sub(link, text)


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    source = project.get("urls", {}).get("Source")
    if source is None:
        raise SystemExit("pyproject.toml has no Source in [project.urls]: there is no link to make")
    readme = ROOT / "README.md"
    readme.write_text(absolute(readme.read_text(), source))


if __name__ == "__main__":
    main()
