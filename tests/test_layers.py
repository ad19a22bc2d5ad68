"""The structure of the package, read from its source: who may import whom, and who may touch what.

`violations` reads every module below a package and says what is against the rules; the tests apply
it to zkwire, and to a small tree of planted mistakes, each of which it must find.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "zkwire"

# From the bottom to the top: a module imports from above itself in this list only.
ORDER = [
    "errors",
    *("jute", "jute.record", "jute.records", "jute.frames", "jute.multi"),
    *("paths", "model", "digest", "ops", "waitable", "calls", "watches", "watch_table", "watching"),
    *("hosts", "search", "liveness", "leases", "endings", "states", "trace"),
    *("control", "authentication", "opening", "flight", "unknown", "session"),
    *("verbs.base", "verbs.checks", "verbs.nodes", "verbs.multi", "verbs.watches"),
    *("verbs.admin", "verbs"),
    *(
        "pacing",
        "pipeline",
        "sasl",
        "tls",
        "options",
        "background",
        "dial",
        "probe",
        "bell",
        "link",
        "secure_link",
    ),
    *("forking", "exiting", "waiting", "held", "engine", "io_thread", "roles", "pump"),
    *("following", "observe", "replies"),
    *("recipes", "recipes.world", "recipes.driver", "recipes.trees"),
    *("client_base", "client_world", "blocking_world", "client"),
    *("aio", "aio.home", "aio.engine", "aio.replies", "aio.pump", "aio.world", "aio.client"),
    *("recipes.attempt", "recipes.insist", "recipes.lost", "recipes.lock"),
    *("recipes.single", "recipes.sequential"),
    *("recipes.read_write", "recipes.semaphore", "recipes.multi_lock", "recipes.contenders"),
    *(
        "recipes.limits",
        "recipes.guarded",
        "recipes.face",
        "recipes.locks",
        "recipes.owners",
        "recipes.family",
    ),
    *("recipes.async_locks", "recipes.async_family"),
    "zkwire",
    *("testing", "cli", "__main__"),
]

# Packages whose modules keep order among themselves; nobody below them may import them.
TOPS = ("testing", "cli")

# The only modules that may touch the world outside: sockets, threads, clocks, chance.
SHELLS = {
    *(
        "pacing",
        "sasl",
        "tls",
        "background",
        "dial",
        "probe",
        "bell",
        "link",
        "secure_link",
        "forking",
    ),
    *("exiting", "waiting", "engine", "io_thread", "roles", "pump", "client_base", "client"),
    *("aio.home", "aio.engine", "aio.replies", "aio.pump", "testing", "cli", "__main__"),
    *("recipes.owners", "recipes.family", "recipes.async_locks", "recipes.async_family"),
}
IMPURE = {
    *("socket", "ssl", "select", "selectors", "_socket", "_ssl"),
    *("threading", "_thread", "queue", "asyncio", "multiprocessing", "subprocess", "signal", "os"),
    *("time", "random", "secrets", "uuid"),
}

# What a recipe may know. It runs blocking, under asyncio and in simulation, so it knows no shell.
RECIPES_MAY_USE = (
    *(
        "errors",
        "jute",
        "paths",
        "model",
        "ops",
        "calls",
        "waitable",
        "watches",
        "verbs",
        "recipes",
    ),
)
RECIPE_SHELLS = {
    "recipes.locks": ("client",),
    "recipes.family": ("client",),
    "recipes.async_locks": ("aio.client",),
    "recipes.async_family": ("aio.client",),
}

# Too expensive to load for everybody who imports zkwire.
EXPENSIVE = {"asyncio", "concurrent", "dataclasses", "logging", "typing"}
# Loaded only by who asks for it.
LATE = (
    *("aio.home", "aio.replies", "aio.pump"),
    *("recipes.async_locks", "recipes.async_family", "testing"),
)

# Clocks that can be set, and what tells their time.
WALL_CLOCKS = {"time": {"time", "time_ns", "ctime", "gmtime", "localtime", "strftime"}}
# A server stamps nodes with the time of day.
MAY_READ_WALL_CLOCK = {"testing.loop"}


class Import(NamedTuple):
    """One imported module, or one name from it."""

    module: str
    name: str | None
    line: int
    typing_only: bool
    in_function: bool


def imports_of(tree: ast.Module, module: str, is_package: bool) -> Iterator[Import]:
    """All imports of a module, wherever they stand; relative ones are made absolute."""

    def visit(node: ast.AST, typing_only: bool, in_function: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, None, node.lineno, typing_only, in_function)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                kept = parts[: len(parts) - node.level + is_package]
                base = ".".join([*kept, base] if base else kept)
            for alias in node.names:
                yield Import(base, alias.name, node.lineno, typing_only, in_function)
        elif isinstance(node, ast.If) and is_type_checking(node.test):
            for statement in node.body:
                yield from visit(statement, True, in_function)
            for statement in node.orelse:
                yield from visit(statement, typing_only, in_function)
        else:
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from visit(child, typing_only, in_function or inside)

    yield from visit(tree, False, False)


def is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return name == "TYPE_CHECKING"


def names_in(tree: ast.Module) -> set[str]:
    """The names that a module's own statements bind, under whatever condition."""
    names = set[str]()
    todo: list[ast.AST] = [*tree.body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
        todo.extend(ast.iter_child_nodes(node))
    return names


def wall_clock_uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Where a module reads a clock that can be set."""
    aliases = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = aliases.get(node.value.id, "")
            if node.attr in WALL_CLOCKS.get(module, ()):
                yield node.lineno, f"{module}.{node.attr}"
            if node.attr == "CLOCK_REALTIME":
                yield node.lineno, node.attr
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, a.name) for a in node.names if a.name == "datetime")
        elif isinstance(node, ast.ImportFrom) and node.module == "datetime":
            if {alias.name for alias in node.names} - {"timedelta"}:  # which has no clock
                yield node.lineno, "datetime"
        elif isinstance(node, ast.ImportFrom) and node.module in WALL_CLOCKS:
            found = {alias.name for alias in node.names} & WALL_CLOCKS[node.module]
            yield from ((node.lineno, f"{node.module}.{name}") for name in sorted(found))


class Package:
    """Its modules: ``errors``, ``jute.record``, ...; the package itself is ``zkwire``."""

    def __init__(self, root: Path) -> None:
        self.name = root.name
        self.trees: dict[str, ast.Module] = {}
        self.packages: set[str] = set()
        for file in sorted(root.rglob("*.py")):
            parts = file.relative_to(root).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
                self.packages.add(".".join(parts) or self.name)
            self.trees[".".join(parts) or self.name] = ast.parse(file.read_bytes(), str(file))

    def imports(self, module: str) -> Iterator[Import]:
        full = self.name if module == self.name else f"{self.name}.{module}"
        return imports_of(self.trees[module], full, module in self.packages)

    def own(self, imported: Import) -> tuple[str, str | None] | None:
        """The module of this package that is imported and the name from it; None if foreign."""
        top, _, module = imported.module.partition(".")
        if top != self.name:
            return None
        inner = f"{module}.{imported.name}" if module else str(imported.name)
        if imported.name is not None and inner in self.trees:
            return inner, None
        return module or self.name, imported.name


def place(module: str) -> str:
    """What ``module`` is called in ORDER."""
    top = module.partition(".")[0]
    return top if top in TOPS else module


def within(module: str, places: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(name + ".") for name in places)


def check_own(package: Package, module: str, imported: Import) -> Iterator[str]:
    """What is wrong with an import of one of the package's own modules."""
    target = package.own(imported)
    if target is None:
        return
    other, name = target
    if other not in package.trees:
        yield f"imports {other}, which does not exist"
        return
    known = names_in(package.trees[other])
    if name is not None and name not in known and "__getattr__" not in known:
        yield f"imports {name} from {other}, which does not define it"
    if imported.typing_only or place(other) not in ORDER or place(module) not in ORDER:
        return
    below, above = ORDER.index(place(other)), ORDER.index(place(module))
    if below > above or (below == above and place(module) not in TOPS):
        yield f"imports {other}, which stands above it"
    elif place(other) == "testing" and place(module) not in TOPS:
        yield f"imports {other}; testing is for tests"
    allowed = RECIPES_MAY_USE + RECIPE_SHELLS.get(module, ())
    if within(module, ("recipes",)) and not within(other, allowed):
        yield f"imports {other}, which no recipe may know"


def check_foreign(package: Package, module: str, imported: Import) -> Iterator[str]:
    """What is wrong with an import of somebody else's module."""
    top = imported.module.partition(".")[0]
    if top == package.name or imported.typing_only:
        return
    if top in IMPURE and place(module) not in SHELLS:
        yield f"imports {top}: only the shells may touch the world outside"
    if top in EXPENSIVE and not imported.in_function and place(module) not in LATE:
        yield f"loads {top}, which is expensive, when it is imported"
    if top not in sys.stdlib_module_names and place(module) not in LATE:
        yield f"imports {top}, which does not come with Python"


def violations(root: Path) -> list[str]:
    """All that is against the rules, as ``module:line: what``."""
    package, found = Package(root), list[tuple[str, int, str]]()
    for module, tree in package.trees.items():
        if place(module) not in ORDER:
            found.append((module, 1, "has no place in ORDER"))
        for imported in package.imports(module):
            for check in (check_own, check_foreign):
                found += [(module, imported.line, w) for w in check(package, module, imported)]
        if module not in MAY_READ_WALL_CLOCK:
            found += [(module, line, f"reads {clock}") for line, clock in wall_clock_uses(tree)]
        found += [
            (module, node.lineno, "catches everything: bare except")
            for node in ast.walk(tree)
            if isinstance(node, ast.ExceptHandler) and node.type is None
        ]
    return [f"{module}:{line}: {what}" for module, line, what in sorted(found)]


# --- zkwire ---------------------------------------------------------------------------------------


def test_the_package_keeps_its_rules() -> None:
    assert violations(PACKAGE) == []


def test_the_order_names_only_what_exists() -> None:
    package = Package(PACKAGE)
    assert sorted(set(ORDER)) == sorted(ORDER)
    assert [module for module in ORDER if module not in package.trees] == []
    assert set(ORDER) >= SHELLS
    assert {name for names in RECIPE_SHELLS.values() for name in names} <= set(ORDER)
    assert len(package.trees) > len(ORDER), "the walk goes into subdirectories"
    assert [m for m in MAY_READ_WALL_CLOCK if not list(wall_clock_uses(package.trees[m]))] == []


# --- planted mistakes -----------------------------------------------------------------------------

GOOD = {
    "errors.py": "class ZooKeeperError(Exception): ...\n",
    "jute/__init__.py": "",
    "jute/record.py": "from zkwire.errors import ZooKeeperError\n",
    "paths.py": "import struct\nfrom .errors import ZooKeeperError as Error\n",
    "ops.py": "from zkwire import paths\nfrom zkwire.jute import record as r\n",
    "session.py": """
        from zkwire.ops import paths
        TYPE_CHECKING = False
        if TYPE_CHECKING:
            from random import Random
            from typing import Any
            from zkwire.client import Client
            class Hold: ...
        """,
    "client.py": """
        import socket, time
        from zkwire.session import TYPE_CHECKING
        def connect():
            import asyncio
            return time.monotonic(), time.sleep(0), time.clock_gettime(time.CLOCK_BOOTTIME)
        class Client: ...
        """,
    "recipes/__init__.py": "",
    "recipes/world.py": """
        TYPE_CHECKING = False
        if TYPE_CHECKING:
            from zkwire.session import Hold
        """,
    "recipes/lock.py": "from ..paths import Error\nfrom . import world\n",
    "recipes/locks.py": "from zkwire.client import Client\nfrom zkwire.recipes.lock import world\n",
    "__init__.py": "from zkwire.client import Client\nfrom .errors import ZooKeeperError\n",
    "testing/__init__.py": "import pytest, asyncio\n",
    "testing/server.py": "from zkwire import Client\nfrom zkwire.testing import proxy\n",
    "testing/proxy.py": "import typing\n",
    "cli/__init__.py": "",
    "cli/main.py": "import os\nfrom zkwire.testing.server import proxy\n",
    "__main__.py": "from zkwire.cli.main import proxy\n",
}

PLANTED = {
    "upwards": (
        "paths.py",
        "import zkwire.session",
        "paths:1: imports session, which stands above it",
    ),
    "upwards, from": (
        "paths.py",
        "from zkwire.session import Hold",
        "paths:1: imports session, which stands above it",
    ),
    "upwards, relative": (
        "jute/record.py",
        "from .. import ops",
        "jute.record:1: imports ops, which stands above it",
    ),
    "upwards, in a function": (
        "paths.py",
        "def f():\n  from zkwire import ops",
        "paths:2: imports ops, which stands above it",
    ),
    "upwards, behind a condition": (
        "paths.py",
        "try:\n  import zkwire.ops\nexcept ImportError: ...",
        "paths:2: imports ops, which stands above it",
    ),
    "upwards, where types are not checked": (
        "paths.py",
        "if TYPE_CHECKING: ...\nelse:\n  import zkwire.ops",
        "paths:3: imports ops, which stands above it",
    ),
    "from the package itself": (
        "session.py",
        "from zkwire import Client",
        "session:1: imports zkwire, which stands above it",
    ),
    "itself": ("ops.py", "import zkwire.ops", "ops:1: imports ops, which stands above it"),
    "missing": (
        "paths.py",
        "import zkwire.missing",
        "paths:1: imports missing, which does not exist",
    ),
    "missing, for types": (
        "paths.py",
        "if TYPE_CHECKING:\n  from zkwire.missing import x",
        "paths:2: imports missing, which does not exist",
    ),
    "a missing name, for types": (
        "paths.py",
        "import typing_\nif typing_.TYPE_CHECKING:\n  from zkwire.session import Missing",
        "paths:3: imports Missing from session, which does not define it",
    ),
    "a missing name": (
        "session.py",
        "from zkwire.ops import missing",
        "session:1: imports missing from ops, which does not define it",
    ),
    "a new module": ("newcomer.py", "", "newcomer:1: has no place in ORDER"),
    "a new module in a package": ("jute/new.py", "", "jute.new:1: has no place in ORDER"),
    "a recipe that knows the client": (
        "recipes/lock.py",
        "from zkwire.client import Client",
        "recipes.lock:1: imports client, which no recipe may know",
    ),
    "a recipe that knows the automaton": (
        "recipes/locks.py",
        "import zkwire.session",
        "recipes.locks:1: imports session, which no recipe may know",
    ),
    "testing": (
        "__init__.py",
        "from zkwire.testing import proxy",
        "zkwire:1: imports testing.proxy, which stands above it",
    ),
    "testing, from the top": (
        "__main__.py",
        "from zkwire.testing import proxy",
        "__main__:1: imports testing.proxy; testing is for tests",
    ),
    "the command, from testing": (
        "testing/server.py",
        "import zkwire.cli.main",
        "testing.server:1: imports cli.main, which stands above it",
    ),
    "a socket": (
        "session.py",
        "import socket",
        "session:1: imports socket: only the shells may touch the world outside",
    ),
    "a clock, in a method": (
        "session.py",
        "class Session:\n  def f(self):\n    from time import monotonic",
        "session:3: imports time: only the shells may touch the world outside",
    ),
    "a submodule": (
        "paths.py",
        "import os.path as p",
        "paths:1: imports os: only the shells may touch the world outside",
    ),
    "chance in a recipe": (
        "recipes/lock.py",
        "import random",
        "recipes.lock:1: imports random: only the shells may touch the world outside",
    ),
    "expensive": (
        "client.py",
        "import dataclasses",
        "client:1: loads dataclasses, which is expensive, when it is imported",
    ),
    "expensive, in a class": (
        "client.py",
        "class C:\n  from concurrent.futures import Future",
        "client:2: loads concurrent, which is expensive, when it is imported",
    ),
    "not Python's own": (
        "client.py",
        "def f():\n  import kazoo.client",
        "client:2: imports kazoo, which does not come with Python",
    ),
    "the time of day": ("client.py", "import time\ntime.time()", "client:2: reads time.time"),
    "the time of day, renamed": (
        "testing/server.py",
        "import time as t\ndef f(): return t.time_ns",
        "testing.server:2: reads time.time_ns",
    ),
    "the time of day, taken out": (
        "cli/main.py",
        "from time import time as now",
        "cli.main:1: reads time.time",
    ),
    "the time of day, by number": (
        "client.py",
        "import time\ntime.clock_gettime(time.CLOCK_REALTIME)",
        "client:2: reads CLOCK_REALTIME",
    ),
    "a date": ("testing/proxy.py", "import datetime", "testing.proxy:1: reads datetime"),
    "a date, taken out": (
        "client.py",
        "from datetime import datetime",
        "client:1: reads datetime",
    ),
    "catching everything": (
        "testing/proxy.py",
        "try: ...\nexcept: ...",
        "testing.proxy:2: catches everything: bare except",
    ),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small package that keeps the rules."""
    root = tmp_path / "zkwire"
    for name, source in GOOD.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = source.strip("\n").splitlines()
        indent = min((len(line) - len(line.lstrip()) for line in lines), default=0)
        file.write_text("\n".join(line[indent:] for line in lines).rstrip() + "\n")
    return root


def test_a_good_tree_is_good(tree: Path) -> None:
    assert violations(tree) == []


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found(tree: Path, name: str) -> None:
    file, source, expected = PLANTED[name]
    path = tree / file
    path.write_text(f"{source}\n{path.read_text() if path.exists() else ''}")
    found = [found for found in violations(tree) if "typing_" not in found]
    assert expected in found
    lines = source.count("\n") + 1
    assert [f for f in found if f != expected and int(f.split(":")[1]) <= lines] == []
