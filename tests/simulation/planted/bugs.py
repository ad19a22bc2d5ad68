"""What the TOML files of this folder say, and the source that a bug makes of a module's."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent
ROOT = next(folder for folder in FOLDER.parents if (folder / "pyproject.toml").exists())


class StaleBugError(Exception):
    """A bug names a text or a test that is not there, or not there once."""


class Bug(NamedTuple):
    """One entry; see the package's docstring."""

    layer: str
    rule: str
    module: str
    text: str
    becomes: str
    found_by: tuple[str, ...]

    @property
    def name(self) -> str:
        """The layer and the rule, as a test's name."""
        return f"{self.layer}: {self.rule}"

    def planted(self) -> tuple[str, str]:
        """The name of the module that has the text, and its source with the bug in it."""
        place = ROOT / self.module
        sources = {path: path.read_text() for path in (sorted(place.rglob("*.py")) or [place])}
        count = sum(source.count(self.text) for source in sources.values())
        if count != 1:
            raise StaleBugError(
                f"{self.name}\n{self.module} has this text {count} times instead of once:\n"
                f"{self.text}"
            )
        path, source = next((p, s) for p, s in sources.items() if self.text in s)
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        return module, source.replace(self.text, self.becomes)

    def tests(self) -> list[str]:
        """The tests that must find it, as pytest wants them named."""
        return [located(test) for test in self.found_by]


def load() -> list[Bug]:
    """All bugs, by layer."""
    bugs: list[Bug] = []
    for path in sorted(FOLDER.glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["bug"]:
            bugs.append(Bug(path.stem, **(entry | {"found_by": tuple(entry["found_by"])})))
    return bugs


def located(test: str) -> str:
    """A test as pytest wants it, from its name; where two have it, its file stands before it."""
    name = test.rpartition("::")[2]
    function = name.partition("[")[0]
    files = [path for path, source in _tests().items() if f"def {function}(" in source]
    if "::" in test:
        files = [path for path in files if path.name == test.partition("::")[0]]
    if len(files) != 1:
        raise StaleBugError(f"there are {len(files)} tests named {test}")
    return f"{files[0].relative_to(ROOT)}::{name}"


@functools.cache
def _tests() -> dict[Path, str]:
    return {path: path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py"))}
