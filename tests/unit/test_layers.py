"""The structure of the package, read from its source: who may import whom, and who may touch what.

`violations` reads every module below a package and says what is against the rules; the tests apply
it to zkwire, and to a small tree of planted mistakes, each of which it must find.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
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
# Within recipes: what all share, each above those that it may know, then the recipes.
RECIPES = ["runtime", "_recipe", "_node", "_lock", "_service"]
CORE = LAYERS[: LAYERS.index("net")]
NOT_EACH_OTHER = ({"blocking", "aio"}, {"blocking", "trio"})
MAY_USE_TESTING = {"testing", "cli", "kazoo"}

# The world outside: sockets, threads, clocks, chance.
IMPURE = {
    *("socket", "ssl", "select", "selectors", "_socket", "_ssl"),
    *("threading", "_thread", "queue", "asyncio", "multiprocessing", "subprocess", "signal", "os"),
    *("time", "random", "secrets", "uuid"),
}

# What a recipe may know of the state machine: it runs in any client, and in simulation.
RECIPES_MAY_USE = {"session.waitable", "session.liveness"}

# Too expensive to load for everybody who imports zkwire.
EXPENSIVE = {"asyncio", "concurrent", "dataclasses", "logging", "typing"}
# Loaded only by who asks for it.
LATE = ("aio", "trio", "testing", "kazoo", "cli")

# Clocks that can be set, and what tells their time.
WALL_CLOCKS = {"time": {"time", "time_ns", "ctime", "gmtime", "localtime", "strftime"}}
# A server stamps nodes with the time of day, and the command shows these stamps.
MAY_READ_WALL_CLOCK = {"testing.server.loop", "cli.output", "cli.lock.command"}


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
            if parts[0] == "_pyinstaller":
                continue  # a program of PyInstaller's, which nothing here imports
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


def layer(module: str) -> str:
    return module.partition(".")[0]


def rank(recipe: str) -> int:
    """The place of a module of recipes; one recipe may know another."""
    name = recipe.rpartition(".")[2]
    return RECIPES.index(name) if name in RECIPES else len(RECIPES)


def check_own(package: Package, module: str, imported: Import) -> Iterator[str]:
    """What is wrong with an import of one of the package's own modules, types included."""
    target = package.own(imported)
    if target is None:
        return
    other, name = target
    if other not in package.trees:
        yield f"imports {other}, which does not exist"
        return
    known = names_in(package.trees[other])
    if name not in {None, "*"} and name not in known and "__getattr__" not in known:
        yield f"imports {name} from {other}, which does not define it"
    here, there = layer(module), layer(other)
    if here not in LAYERS or there not in LAYERS:
        return
    if LAYERS.index(there) > LAYERS.index(here):
        yield f"imports {other}, which stands above it"
    elif here != there and {here, there} in NOT_EACH_OTHER:
        yield f"imports {other}; the clients do not know each other"
    elif there == "testing" and here not in MAY_USE_TESTING:
        yield f"imports {other}; testing is for tests"
    elif here == there == "recipes" and rank(other) > rank(module):
        yield f"imports {other}, which stands above it"
    elif (here, there) == ("recipes", "session") and other not in RECIPES_MAY_USE:
        yield f"imports {other}, which no recipe may know"


def check_foreign(package: Package, module: str, imported: Import) -> Iterator[str]:
    """What is wrong with an import of somebody else's module."""
    top = imported.module.partition(".")[0]
    if top == package.name or imported.typing_only:
        return
    if top in IMPURE and layer(module) in CORE:
        yield f"imports {top}: only net and clients do I/O"
    if top in EXPENSIVE and not imported.in_function and layer(module) not in LATE:
        yield f"loads {top}, which is expensive, when it is imported"
    if top not in sys.stdlib_module_names and layer(module) not in LATE:
        yield f"imports {top}, which does not come with Python"


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of modules in which each one leads to every other."""
    reached = {module: reachable(arrows, module) for module in arrows}
    groups = {
        tuple(sorted(other for other in reached[module] if module in reached.get(other, set())))
        for module in arrows
    }
    return sorted(list(group) for group in groups if group)


def reachable(arrows: Mapping[str, set[str]], start: str) -> set[str]:
    """The modules to which arrows lead from one, itself only over others or by itself."""
    found, todo = set[str](), [start]
    while todo:
        for other in arrows.get(todo.pop(), set()) - found:
            found.add(other)
            todo.append(other)
    return found


def arrows_of(package: Package) -> dict[str, set[str]]:
    """Which modules of the package each of its modules imports, types included."""
    arrows: dict[str, set[str]] = {module: set() for module in package.trees}
    for module in package.trees:
        for imported in package.imports(module):
            target = package.own(imported)
            if target is not None:
                arrows[module].add(target[0])
    return arrows


def violations(root: Path) -> list[str]:
    """All that is against the rules, as ``module:line: what``."""
    package, found = Package(root), list[tuple[str, int, str]]()
    for module, tree in package.trees.items():
        if layer(module) not in LAYERS:
            found.append((module, 1, "has no place in LAYERS"))
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
    for group in circles(arrows_of(package)):
        found.append((group[0], 1, f"is in a circle: {', '.join(group)}"))
    return [f"{module}:{line}: {what}" for module, line, what in sorted(found)]


# --- zkwire ---------------------------------------------------------------------------------------


def test_the_package_keeps_its_rules() -> None:
    assert violations(PACKAGE) == []


def test_the_rooms_are_those_that_there_are() -> None:
    package = Package(PACKAGE)
    assert {layer(module) for module in package.trees} == set(LAYERS)
    assert [m for m in MAY_READ_WALL_CLOCK if not list(wall_clock_uses(package.trees[m]))] == []
    assert set(package.trees) >= RECIPES_MAY_USE


def test_few_arrows_lead_from_room_to_layer() -> None:
    """What a new one costs is that its two ends can no longer be read apart."""
    arrows = arrows_of(Package(PACKAGE))
    between = {
        (layer(module), layer(other))
        for module, others in arrows.items()
        for other in others
        if layer(module) != layer(other)
    }
    assert len(between) <= 66, sorted(between)


# --- planted mistakes -----------------------------------------------------------------------------

GOOD = {
    "errors.py": "class ZooKeeperError(Exception): ...\n",
    "jute/__init__.py": "",
    "jute/record.py": "from zkwire.errors import ZooKeeperError\n",
    "wire/__init__.py": "",
    "wire/paths.py": "import struct\nfrom ..errors import ZooKeeperError as Error\n",
    "wire/ops.py": "from zkwire.wire import paths\nfrom zkwire.jute import record as r\n",
    "session/__init__.py": "",
    "session/waitable.py": "class Watch: ...\n",
    "session/session.py": """
        from zkwire.wire.ops import paths
        TYPE_CHECKING = False
        if TYPE_CHECKING:
            from random import Random
            from typing import Any
            from zkwire.session.waitable import Watch
            class Hold: ...
        """,
    "net/__init__.py": "",
    "net/dial.py": """
        TYPE_CHECKING = False
        if TYPE_CHECKING:
            from zkwire.session.session import Hold
        """,
    "blocking/__init__.py": "",
    "blocking/client.py": """
        import socket, time
        from zkwire.session.session import TYPE_CHECKING
        def connect():
            import asyncio
            return time.monotonic(), time.sleep(0), time.clock_gettime(time.CLOCK_BOOTTIME)
        class Client: ...
        """,
    "aio/__init__.py": "",
    "aio/client.py": "import asyncio\nfrom zkwire.net import dial\n",
    "recipes/__init__.py": "",
    "recipes/runtime.py": """
        TYPE_CHECKING = False
        if TYPE_CHECKING:
            from zkwire.session.waitable import Watch
        """,
    "recipes/cache.py": "from . import runtime\n",
    "recipes/_lock.py": "from ..wire.paths import Error\nfrom . import runtime\n",
    "__init__.py": """
        from zkwire.blocking.client import Client
        from .errors import ZooKeeperError
        """,
    "testing/__init__.py": "import pytest, asyncio\n",
    "testing/server.py": "from zkwire import Client\nfrom zkwire.testing import proxy\n",
    "testing/proxy.py": "import typing\n",
    "cli/__init__.py": "",
    "cli/main.py": "import os\nfrom zkwire.testing.server import proxy\n",
    "__main__.py": "from zkwire.cli.main import proxy\n",
}

# A name, what is to be found, and the file where that is not the module that is found; then what
# stands at the beginning of the file.
PLANTED = """
upwards | wire.paths:1: imports session.session, which stands above it
    import zkwire.session.session
upwards, from | wire.paths:1: imports session.session, which stands above it
    from zkwire.session.session import Hold
upwards, relative | jute.record:1: imports wire.ops, which stands above it
    from ..wire import ops
upwards, in a function | jute.record:2: imports wire.ops, which stands above it
    def f():
      from zkwire.wire import ops
upwards, behind a condition | jute.record:2: imports wire.ops, which stands above it
    try:
      import zkwire.wire.ops
    except ImportError: ...
upwards, for types | wire.paths:3: imports session.waitable, which stands above it
    TYPE_CHECKING = False
    if TYPE_CHECKING:
      from zkwire.session.waitable import Watch
upwards, where types are not checked | jute.record:3: imports wire.ops, which stands above it
    if TYPE_CHECKING: ...
    else:
      import zkwire.wire.ops
from the package itself | session.session:1: imports zkwire, which stands above it
    from zkwire import Client
itself | wire.ops:1: is in a circle: wire.ops
    import zkwire.wire.ops
circle | session.session:1: is in a circle: session.session, session.waitable | session/waitable.py
    import zkwire.session.session
one client in the other | aio.client:1: imports blocking.client; the clients do not know each other
    import zkwire.blocking.client
missing | wire.paths:1: imports missing, which does not exist
    import zkwire.missing
missing, for types | wire.paths:2: imports missing, which does not exist
    if TYPE_CHECKING:
      from zkwire.missing import x
a missing name, typing | net.dial:3: imports Missing from session.session, which does not define it
    import typing_
    if typing_.TYPE_CHECKING:
      from zkwire.session.session import Missing
a missing name | session.session:1: imports missing from wire.ops, which does not define it
    from zkwire.wire.ops import missing
a new layer | newcomer:1: has no place in LAYERS
a recipe that knows the client | recipes._lock:1: imports blocking.client, which stands above it
    from zkwire.blocking.client import Client
a recipe above | recipes._lock:1: imports recipes.cache, which stands above it
    import zkwire.recipes.cache
a recipe that knows a session | recipes._lock:1: imports session.session, which no recipe may know
    import zkwire.session.session
testing | zkwire:1: imports testing.proxy, which stands above it
    from zkwire.testing import proxy
testing, from the top | __main__:1: imports testing.proxy; testing is for tests
    from zkwire.testing import proxy
the command, from testing | testing.server:1: imports cli.main, which stands above it
    import zkwire.cli.main
a socket | session.session:1: imports socket: only net and clients do I/O
    import socket
a clock, in a method | session.session:3: imports time: only net and clients do I/O
    class Session:
      def f(self):
        from time import monotonic
a submodule | wire.paths:1: imports os: only net and clients do I/O
    import os.path as p
chance in a recipe | recipes._lock:1: imports random: only net and clients do I/O
    import random
expensive | blocking.client:1: loads dataclasses, which is expensive, when it is imported
    import dataclasses
expensive, in a class | blocking.client:2: loads concurrent, which is expensive, when it is imported
    class C:
      from concurrent.futures import Future
not Python's own | blocking.client:2: imports kazoo, which does not come with Python
    def f():
      import kazoo.client
the time of day | blocking.client:2: reads time.time
    import time
    time.time()
the time of day, renamed | testing.server:2: reads time.time_ns
    import time as t
    def f(): return t.time_ns
the time of day, taken out | cli.main:1: reads time.time
    from time import time as now
the time of day, by number | blocking.client:2: reads CLOCK_REALTIME
    import time
    time.clock_gettime(time.CLOCK_REALTIME)
a date | testing.proxy:1: reads datetime
    import datetime
a date, taken out | blocking.client:1: reads datetime
    from datetime import datetime
catching everything | testing.proxy:2: catches everything: bare except
    try: ...
    except: ...
"""


class Planted(NamedTuple):
    name: str
    file: str
    source: str
    expected: str


def planted() -> Iterator[Planted]:
    for head, body in re.findall(r"^(\S.*)\n((?: {4}.*\n)*)", PLANTED, re.MULTILINE):
        name, expected, *file = head.split(" | ")
        module = expected.partition(":")[0].replace("zkwire", "__init__").replace(".", "/")
        source = textwrap.dedent(body).rstrip("\n")
        yield Planted(name, file[0] if file else f"{module}.py", source, expected)


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


@pytest.mark.parametrize("mistake", list(planted()), ids=lambda mistake: mistake.name)
def test_a_planted_mistake_is_found(tree: Path, mistake: Planted) -> None:
    _, file, source, expected = mistake
    path = tree / file
    path.write_text(f"{source}\n{path.read_text() if path.exists() else ''}")
    found = [found for found in violations(tree) if "typing_" not in found]
    assert expected in found
    lines = source.count("\n") + 1
    others = [f for f in found if f != expected and "circle" not in f]  # an upward arrow closes one
    assert [f for f in others if int(f.split(":")[1]) <= lines] == []
