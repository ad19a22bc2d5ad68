"""The structure of the package, read from its source: who may import whom, and touch what."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "zkwire"

# The layers from the bottom to the top: a module imports from its own layer and from those before.
LAYERS = [
    *("errors", "jute", "wire", "session", "operations", "recipes"),  # the core: no I/O
    *("net", "blocking", "aio", "trio", "zkwire"),
    *("testing", "kazoo", "cli", "__main__"),
]
CORE = LAYERS[: LAYERS.index("net")]
# Within recipes: what all share, each above those that it may know, then the recipes.
RECIPES = ["runtime", "_recipe", "_service", "_node", "_lock"]
NOT_EACH_OTHER = ({"blocking", "aio"}, {"blocking", "trio"})
MAY_USE_TESTING = {"testing", "cli", "kazoo"}
# What a recipe may know of the state machine: it runs in any client, and in simulation.
RECIPES_MAY_USE = {"session.waitable", "session.liveness", "session.status"}

# The world outside: sockets, threads, clocks, chance.
IMPURE = {
    *("socket", "ssl", "select", "selectors", "_socket", "_ssl"),
    *("threading", "_thread", "queue", "asyncio", "multiprocessing", "subprocess", "signal", "os"),
    *("time", "random", "secrets", "uuid"),
}
# Too expensive to load for everybody who imports zkwire, and what is loaded only when asked for.
EXPENSIVE = {"asyncio", "concurrent", "dataclasses", "logging", "typing"}
LATE = ("aio", "trio", "testing", "kazoo", "cli")

# Clocks that can be set. A server stamps nodes with the time of day, and the command shows that.
WALL_CLOCK = re.compile(
    r"\btime\.(?:time|time_ns|ctime|gmtime|localtime|strftime)\b|^\s*import time as\b"
    r"|^\s*from time import.*\b(?:time|time_ns|ctime|gmtime|localtime|strftime)\b"
    r"|CLOCK_REALTIME|^\s*import datetime|^\s*from datetime import (?!timedelta$)",
    re.MULTILINE,
)
MAY_READ_WALL_CLOCK = {"testing.server.loop", "cli.output", "cli.lock.command"}


class Import(NamedTuple):
    """One imported module, or one name from it."""

    module: str
    name: str | None
    typing_only: bool
    in_function: bool


def imports_of(tree: ast.Module, module: str, is_package: bool) -> Iterator[Import]:
    """All imports of a module, wherever they stand; relative ones are made absolute."""

    def visit(node: ast.AST, typing_only: bool, in_function: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, None, typing_only, in_function)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            kept = parts[: len(parts) - node.level + is_package] if node.level else []
            base = ".".join([*kept, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(base, alias.name, typing_only, in_function)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for statement in node.body:
                yield from visit(statement, True, in_function)
            for statement in node.orelse:
                yield from visit(statement, typing_only, in_function)
        else:
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from visit(child, typing_only, in_function or inside)

    yield from visit(tree, False, False)


class Package:
    """Its modules: ``errors``, ``jute.record``, ...; the package itself is ``zkwire``."""

    def __init__(self, root: Path) -> None:
        self.name = root.name
        self.trees: dict[str, ast.Module] = {}
        self.packages: set[str] = set()
        for file in sorted(root.rglob("*.py")):
            parts = file.relative_to(root).with_suffix("").parts
            if parts[0] == "_pyinstaller":
                continue  # a program of PyInstaller's, which nothing here imports
            if parts[-1] == "__init__":
                parts = parts[:-1]
                self.packages.add(".".join(parts) or self.name)
            self.trees[".".join(parts) or self.name] = ast.parse(file.read_bytes(), str(file))

    def imports(self, module: str) -> Iterator[Import]:
        full = self.name if module == self.name else f"{self.name}.{module}"
        return imports_of(self.trees[module], full, module in self.packages)

    def own(self, imported: Import) -> str | None:
        """The module of this package that is imported; None if it is foreign."""
        top, _, module = imported.module.partition(".")
        if top != self.name:
            return None
        inner = f"{module}.{imported.name}".removeprefix(".")
        return inner if inner in self.trees else module or self.name


def layer(module: str) -> str:
    return module.partition(".")[0]


def rank(recipe: str) -> int:
    """The place of a module of recipes; one recipe may know another."""
    name = recipe.rpartition(".")[2]
    return RECIPES.index(name) if name in RECIPES else len(RECIPES)


def wrong_own(module: str, other: str) -> str:
    """What is wrong with an import of one of the package's own modules, types included."""
    here, there = layer(module), layer(other)
    if LAYERS.index(there) > LAYERS.index(here):
        return "stands above it"
    if here != there and {here, there} in NOT_EACH_OTHER:
        return "is the other client"
    if there == "testing" and here not in MAY_USE_TESTING:
        return "is for tests"
    if here == there == "recipes" and rank(other) > rank(module):
        return "stands above it"
    if (here, there) == ("recipes", "session") and other not in RECIPES_MAY_USE:
        return "is what no recipe may know"
    return ""


def wrong_foreign(module: str, imported: Import) -> str:
    """What is wrong with an import of somebody else's module."""
    top = imported.module.partition(".")[0]
    if top in IMPURE and layer(module) in CORE:
        return "is I/O, which only net and clients do"
    if top in EXPENSIVE and not imported.in_function and layer(module) not in LATE:
        return "is expensive"
    if top not in sys.stdlib_module_names and layer(module) not in LATE:
        return "does not come with Python"
    return ""


def violations(package: Package, module: str) -> Iterator[str]:
    """All that is against the rules in a module."""
    for imported in package.imports(module):
        other = package.own(imported)
        if other is not None:
            wrong = wrong_own(module, other)
        else:
            wrong = "" if imported.typing_only else wrong_foreign(module, imported)
        if wrong:
            yield f"{module}: {other or imported.module} {wrong}"
    if module not in MAY_READ_WALL_CLOCK and WALL_CLOCK.search(ast.unparse(package.trees[module])):
        yield f"{module}: reads a clock that can be set"


def arrows_of(package: Package) -> dict[str, set[str]]:
    """Which modules of the package each of its modules imports, types included."""
    return {
        module: {other for one in package.imports(module) if (other := package.own(one))}
        for module in package.trees
    }


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """A circle of imports, if there is one."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.fixture(scope="module")
def package() -> Package:
    return Package(PACKAGE)


def test_the_package_keeps_its_rules(package: Package) -> None:
    assert {layer(module) for module in package.trees} == set(LAYERS)
    assert [wrong for module in package.trees for wrong in violations(package, module)] == []
    assert circle(arrows_of(package)) == []
    for module in MAY_READ_WALL_CLOCK:
        assert WALL_CLOCK.search(ast.unparse(package.trees[module]))
    assert set(package.trees) >= RECIPES_MAY_USE


def test_few_arrows_lead_from_layer_to_layer(package: Package) -> None:
    """What a new one costs is that its two ends can no longer be read apart."""
    arrows = [(a, b) for a, others in arrows_of(package).items() for b in others]
    between = {(layer(a), layer(b)) for a, b in arrows if layer(a) != layer(b)}
    assert len(between) <= 66, sorted(between)
