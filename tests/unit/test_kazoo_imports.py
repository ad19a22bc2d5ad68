"""What imports kazoo, and what `zkwire.kazoo` takes from zkwire: read from the source and run."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import zkwire
import zkwire.testing
from tests.interop.kazoo_programs.programs import PAGE, PROGRAMS, differences

PACKAGE = Path(zkwire.__file__).parent
ENGINE = sorted((PACKAGE / "kazoo").glob("*.py"))
# Of kazoo's client, of its handler's results, and of this package's own classes.
KAZOOS_OWN = {
    *("_call", "_connection", "_session_callback", "_session_id", "_session_passwd"),
    *("_session_timeout", "_state", "_stopped", "_live", "_protocol_version"),
    *("_CONNECTION_DROP", "_SESSION_EXPIRED"),
    "_is_owned",  # of threading.Condition, and of eventlet's
}


def run(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=PACKAGE.parent, timeout=60
    )


def test_nothing_of_zkwire_loads_kazoo_unless_it_is_asked_for() -> None:
    files = (file.relative_to(PACKAGE.parent) for file in PACKAGE.rglob("*.py"))
    names = sorted(".".join(file.with_suffix("").parts) for file in files)
    asked_for = ("zkwire.kazoo", "zkwire._pyinstaller")
    modules = [n for n in names if not n.startswith(asked_for) and not n.endswith("__main__")]
    assert len(modules) > 100
    done = run(
        f"import importlib, sys\nfor name in {modules}: importlib.import_module(name)\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] == 'kazoo'))\n"
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_without_kazoo_the_error_says_how_to_get_it() -> None:
    done = run("import sys; sys.modules['kazoo'] = None; import zkwire.kazoo")
    assert "ImportError: zkwire.kazoo needs kazoo, `pip install zkwire[kazoo]`" in done.stderr


def test_the_page_has_each_program_and_each_test_that_differs() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert differences() in page
    assert [program.name for program in PROGRAMS if f"| {program.what} | " not in page] == []


PUBLIC = {"zkwire": set(zkwire.__all__), "zkwire.testing": set(zkwire.testing.__all__)}


def private_uses(tree: ast.Module) -> Iterator[str]:
    """What is not public in zkwire and is used: modules, names of it, attributes of whatever."""
    own = set(KAZOOS_OWN)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Name):
            own.add(node.id)
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self":
            own.add(node.attr)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
            yield from (f"import {n}" for n in names if n.startswith("zkwire.") and n not in PUBLIC)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module.split(".")[0] == "zkwire" and not module.startswith("zkwire.kazoo"):
                known = PUBLIC.get(module, set())
                yield from (f"{module}.{a.name}" for a in node.names if a.name not in known)
        elif isinstance(node, ast.Attribute):
            of_zkwire = getattr(node.value, "id", "") == "zk"
            private = node.attr.startswith("_") and not node.attr.startswith("__")
            if node.attr not in zkwire.__all__ if of_zkwire else private and node.attr not in own:
                yield f"{'zk' * of_zkwire}.{node.attr}"


@pytest.mark.parametrize("file", ENGINE, ids=lambda file: file.name)
def test_the_engine_uses_only_what_is_public(file: Path) -> None:
    assert list(private_uses(ast.parse(file.read_text(encoding="utf-8")))) == []
    planted = "from zkwire.net import client; import zkwire as zk; zk.blocking; client._driver.x()"
    assert {*private_uses(ast.parse(planted))} == {"zkwire.net.client", "zk.blocking", "._driver"}
