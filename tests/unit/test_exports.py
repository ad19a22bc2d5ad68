"""What users see of the public names beside their signatures, which `public_api.txt` pins."""

from __future__ import annotations

import inspect
import pydoc
import re
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

import zkwire
from tests.support.operation_samples import OPERATIONS
from zkwire import errors
from zkwire.net.pipeline import Pipeline
from zkwire.operations import Operations

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = {name: getattr(zkwire, name) for name in zkwire.__all__}
CLASSES = {name: kind for name, kind in PUBLIC.items() if isinstance(kind, type)}
OF_A_MULTI = {"Check", "Create", "Delete", "GetChildren", "GetData", "SetData"}
LOCKS = {"BlockingLock", "Lock", "NonBlockingLock", "SequentialLock"}
# For threads, and with Async for asyncio.
TWINS = {name for name in zkwire.__all__ if f"Async{name}" in zkwire.__all__}
NO_OPERATIONS = {name for name in vars(zkwire.Client) if not name.startswith("_")} - OPERATIONS


def members(kind: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties of a class that zkwire itself gives it."""
    for name in {name for name in dir(kind) if not name.startswith("_")}:
        owner = next((cls for cls in kind.__mro__ if name in vars(cls)), object)
        member = vars(owner).get(name)
        method = inspect.isroutine(member) and not inspect.ismemberdescriptor(member)
        if owner.__module__.startswith("zkwire") and (method or isinstance(member, property)):
            yield name, member


def test_each_name_comes_from_the_module_that_the_table_names() -> None:
    names: dict[str, object] = {}
    exec("from zkwire import *", names)
    assert set(names) - {"__builtins__"} == set(PUBLIC) <= set(dir(zkwire))
    assert list(zkwire._HOMES) == zkwire.__all__
    assert len(PUBLIC) == len(zkwire.__all__)
    for name, module in zkwire._HOMES.items():
        value = getattr(import_module(module), name)
        assert value is PUBLIC[name]
        assert getattr(value, "__module__", module) == module or name in {*OF_A_MULTI, *LOCKS}
    with pytest.raises(AttributeError, match="no attribute 'NoSuchThing'"):
        getattr(zkwire, "NoSuchThing")  # noqa: B009 - a type checker knows that it is none


def test_the_api_page_names_each_module_once() -> None:
    """The page then shows all public names, since it shows those of a module together."""
    page = (ROOT / "docs" / "api.md").read_text()
    modules = " ".join(re.findall(r"```{api} (.+)", page)).split()
    assert sorted(f"zkwire.{name}" for name in modules) == sorted(set(zkwire._HOMES.values()))


def test_a_public_name_can_be_looked_up() -> None:
    """It has a docstring of its own, and so has each member."""
    for name, value in PUBLIC.items():
        if callable(value):
            assert value.__doc__ if name not in CLASSES else vars(value).get("__doc__"), name
            assert value.__name__ == name or name in {"Lock", "AsyncLock", *OF_A_MULTI}
            assert not value.__name__.startswith("_")
        else:
            assert isinstance(value, tuple)
    for name, kind in CLASSES.items():
        for member_name, member in members(kind):
            assert inspect.getdoc(member), f"{name}.{member_name}"


def test_every_error_is_public() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    ours = {kind.__name__ for kind in kinds if issubclass(kind, errors.ZooKeeperError)}
    assert ours == {name for name, kind in CLASSES.items() if issubclass(kind, Exception)} & ours
    assert len(ours) > 40


def test_the_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert zkwire.__version__ == project["version"]


def test_types_are_promised() -> None:
    assert (ROOT / "zkwire" / "py.typed").exists()


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_an_operation_says_how_it_can_end(name: str) -> None:
    doc = inspect.getdoc(getattr(Operations, name)) or ""
    another = re.search(r"as (?:for )?:meth:`(\w+)`", doc)
    if another:
        doc += inspect.getdoc(getattr(Operations, another[1])) or ""
    for said in ("Refused with", "Lost connection", "[Tt]ime limit"):
        assert re.search(said, doc), said


def stated(function: Callable[..., object]) -> str:
    """The signature of a function as help shows it, in one line."""
    text = pydoc.plain(pydoc.render_doc(function))
    return " ".join(text.partition("\n\n")[2].split()).replace("'", "")


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_help_tells_what_an_operation_returns(name: str) -> None:
    """Else it is the same everywhere, with one documentation."""
    blocking, ours = getattr(zkwire.Client, name), getattr(Operations, name)
    result = inspect.signature(ours).return_annotation
    assert result.startswith("Reply["), result
    bare = result[len("Reply[") : -1]
    assert inspect.signature(blocking) == inspect.signature(ours).replace(return_annotation=bare)
    assert f"-> {bare} " in stated(blocking)
    assert f"-> {result} " in stated(getattr(zkwire.AsyncClient, name))
    assert getattr(Pipeline, name) is ours
    assert blocking.__doc__ == ours.__doc__
    assert blocking.__code__ is ours.__code__, "a function stands around it"


def test_help_tells_what_waits() -> None:
    for name in ("connect", "close", "detach", "wait_for_state", "ensure_path", "delete_tree"):
        blocking, ours = getattr(zkwire.Client, name), getattr(zkwire.AsyncClient, name)
        assert inspect.iscoroutinefunction(ours)
        assert not inspect.iscoroutinefunction(blocking)
        assert inspect.signature(blocking) == inspect.signature(ours)
        assert blocking.__doc__ == ours.__doc__ != ""
    assert "-> Iterator[str]" in stated(zkwire.Client.walk)
    assert "-> AsyncIterator[str]" in stated(zkwire.AsyncClient.walk)
    shown = pydoc.plain(pydoc.render_doc(zkwire.Client))
    assert "replies = [client.pipeline.get_data(path) for path in paths]" in shown
    assert "Reply[" not in shown
