"""What users see of the public names beside their signatures, which `public_api.txt` pins."""

from __future__ import annotations

import copy
import inspect
import pickle
import pydoc
import re
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import zkwire
from tests.support.both_clients import LOCKS, Side, both
from tests.support.operation_samples import OPERATIONS
from zkwire import errors
from zkwire.net.pipeline import Pipeline
from zkwire.operations import Operations
from zkwire.recipes.sequential import AsyncSequentialLock

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = {name: getattr(zkwire, name) for name in zkwire.__all__}
CLASSES = {name: kind for name, kind in PUBLIC.items() if isinstance(kind, type)}
OF_A_MULTI = {"Check", "Create", "Delete", "GetChildren", "GetData", "SetData"}
OF_ONE_FILE = {"BlockingLock", "Lock", "NonBlockingLock", "SequentialLock"}
# For threads, and with Async for asyncio.
TWINS = {name for name in zkwire.__all__ if f"Async{name}" in zkwire.__all__}


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
    assert sorted(zkwire._HOMES) == sorted(zkwire.__all__)
    assert len(PUBLIC) == len(zkwire.__all__)
    for name, module in zkwire._HOMES.items():
        value = getattr(import_module(module), name)
        assert value is PUBLIC[name]
        assert getattr(value, "__module__", module) == module or name in {*OF_A_MULTI, *OF_ONE_FILE}
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


HOSTS = "127.0.0.1:1"  # which nothing here asks anything


@both
def test_what_is_bound_to_a_client_is_not_copied(side: Side) -> None:
    client = side.Client(HOSTS)
    lock, pair = side.Lock(client, "/a"), side.ReadWriteLock(client, "/a")
    queue = side.Queue(client, "/a")
    things = [client, lock, lock.lost, pair.read, pair.write, queue.take(), client.transaction()]
    classes = [getattr(zkwire, side.prefix + name) for name in TWINS]
    things += [zkwire.Watch(), *(cls.__new__(cls) for cls in classes)]
    for thing in things:
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError) as caught:
                copied(thing)
            said = f"{type(thing).__name__} cannot be copied or pickled: it belongs to this process"
            assert str(caught.value).startswith(said)


@both
def test_an_operation_of_a_supervisor_says_who_has_it(side: Side) -> None:
    call = "(await supervisor.client())" if side.asyncio else "supervisor.client()"
    supervisor = side.Supervisor(HOSTS)
    for name in ("create", "get_data", "ensure_path", "transaction", "state", "detach"):
        with pytest.raises(AttributeError) as caught:
            getattr(supervisor, name)
        assert str(caught.value).endswith(f"no attribute '{name}': a client has it, {call}.{name}")
        assert (caught.value.name, caught.value.obj) == (name, supervisor)
    for name in ("creat", "_driver", "__len__"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'$"):
            getattr(supervisor, name)


KINDS = sorted({title.partition(".")[0] for title in LOCKS.values()} - {"MultiLock"})
COUNT: dict[str, tuple[Any, ...]] = {"Semaphore": (2,)}


@both
@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_is_of_a_client_of_its_own_kind_and_its_text_a_text(side: Side, kind: str) -> None:
    """Refused when it is made, not when it is acquired."""
    own, other = side.Client(HOSTS), Side("" if side.asyncio else "Async")
    said = "an AsyncClient" if side.asyncio else "a Client or a Supervisor"
    for wrong in (HOSTS, None, other.Client(HOSTS)):
        with pytest.raises(TypeError, match=f"client must be {said}, not "):
            getattr(side, kind)(wrong, "/lock", *COUNT.get(kind, ()))
    assert getattr(side, kind)(own, "/lock", *COUNT.get(kind, ())).path == "/lock"
    if kind.endswith("BlockingLock"):  # which shows none
        return
    for text in (None, b"who", 5):
        with pytest.raises(TypeError, match="text must be a str, not "):
            getattr(side, kind)(own, "/lock", *COUNT.get(kind, ()), text)
    with pytest.raises(ValueError, match=r"text contains a surrogate, .*\\ud800"):
        getattr(side, kind)(own, "/lock", *COUNT.get(kind, ()), "\ud800")
    with pytest.raises(TypeError, match="callable"):
        AsyncSequentialLock(zkwire.AsyncClient(HOSTS), "/a").lost.add_callback(5)  # type: ignore[arg-type]


def test_a_multi_lock_is_of_locks() -> None:
    side = Side("")
    client = side.Client(HOSTS)
    lock = side.SequentialLock(client, "/lock")
    others = [side.ReentrantLock(client, "/b"), side.Semaphore(client, "/b", 2)]
    others += [side.ReadWriteLock(client, "/b"), side.MultiLock(lock), [lock], None]
    for wrong in others:
        with pytest.raises(TypeError, match="a MultiLock takes locks such as SequentialLock, not "):
            side.MultiLock(lock, wrong)
    with pytest.raises(TypeError, match="locks such as AsyncSequentialLock, not SequentialLock"):
        zkwire.AsyncMultiLock(lock)
