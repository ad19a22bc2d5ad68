"""The public surface, pinned: no name appears, vanishes or loses its docstring unnoticed."""

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
from zkwire.jute.record import Record
from zkwire.net.pipeline import Pipeline
from zkwire.operations import Operations

ROOT = Path(__file__).resolve().parents[2]

ERRORS = {
    *("AuthFailedError", "BadArgumentsError", "BadVersionError", "ClientClosedError"),
    *("ConnectionLossError", "DataInconsistencyError", "EphemeralOnLocalSessionError"),
    *(
        "ForkedError",
        "GarbledError",
        "InvalidACLError",
        "LockCancelledError",
        "LockLostError",
        "LockTakenError",
    ),
    *("LockTimeoutError", "MarshallingError", "MultiError", "NewConfigNoQuorumError"),
    *("NoAuthError", "NoChildrenForEphemeralsError", "NoNodeError", "NoWatcherError"),
    *("NodeExistsError", "NotEmptyError", "NotReadOnlyError", "NotSentError"),
    *("OperationTimeoutError", "OutcomeUnknownError", "ProtocolError", "QuotaExceededError"),
    *("ReconfigDisabledError", "ReconfigInProgressError", "ReplyTooLargeError"),
    *("RequestTimeoutError", "RuntimeInconsistencyError", "SequenceExhaustedError", "ServerError"),
    *("ServerTimeoutError", "SessionExpiredError", "SessionMovedError", "ThrottledOpError"),
    *("UnimplementedError", "UnknownSessionError", "UnreachableError", "ZooKeeperError"),
}
LOCKS = {"BlockingLock", "Lock", "NonBlockingLock", "SequentialLock"}
CONSTANTS = {"CREATOR_ALL_ACL", "OPEN_ACL_UNSAFE", "READ_ACL_UNSAFE"}
VALUES = {
    *("ACL", "AclAndStat", "ChildrenAndStat", "ClientInfo", "Credentials", "DataAndStat", "Event"),
    *("EventType", "Id", "PathAndStat", "Perms", "Stat", "State", "TraceFrame", "WatchType"),
}
FUNCTIONS = {"digest_auth", "digest_id"}
OF_A_MULTI = {"Check", "Create", "Delete", "GetChildren", "GetData", "SetData"}
# For threads, and with Async for asyncio: recipes are exported by tools/generate.py, and all names
# are in the snapshot of test_public_api.
TWINS = {name for name in zkwire.__all__ if f"Async{name}" in zkwire.__all__}
PUBLIC = (
    ERRORS
    | TWINS
    | {f"Async{name}" for name in TWINS}
    | CONSTANTS
    | VALUES
    | FUNCTIONS
    | OF_A_MULTI
    | {"CacheEvent", "CacheFullError", "CachedNode", "Member"}
    | {"CacheEvent", "CacheFullError", "CachedNode"}
    | {"QueueEmptyError", "QueueFullError", "QueueItem"}
    | {"LockInUseError"}
    | {"Contender", "DigestMD5", "Leadership", "Lost", "SeenChildren", "SeenData", "Watch"}
    | {"Observer", "RequestEnd"}
)

# Those that are about something else than a node, and what they are about.
FIRST_ARGUMENT = {
    "add_auth": "scheme",
    "get_config": None,
    "get_ephemerals": "prefix",
    "multi": "operations",
    "multi_read": "operations",
    "reconfig": None,
    "who_am_i": None,
}
BY_POSITION = {"acl", "data", "secret", "version", "which"}
FLAGS = {"container", "ephemeral", "recursive", "sequential", "ttl", "watch"}
A_LOCKS = frozenset(
    {
        *("acquire", "cancel", "check", "fence", "held", "lease_remaining", "lost", "node", "path"),
        "release",
        *("try_acquire", "within"),
    }
)
NO_OPERATIONS = {
    *("add_state_listener", "close", "connect", "credentials", "delete_tree", "detach"),
    *(
        "ensure_path",
        "lease_margin",
        "lease_remaining",
        "pipeline",
        "remove_state_listener",
        "session_id",
    ),
    *(
        "last_zxid",
        "server",
        "session_timeout",
        "set_hosts",
        "start",
        "state",
        "transaction",
        "wait_for_state",
        "walk",
    ),
    *("watch_children", "watch_data"),
}
MEMBERS = {
    "Client": OPERATIONS | NO_OPERATIONS,
    "DigestMD5": {"exchange"},
    "Watch": {"close", "closed", "ready", "take", "wait"},
    "Lost": {"add_callback", "is_set", "ready", "reason", "wait"},
    **dict.fromkeys(LOCKS, A_LOCKS | {"guard"}),
    **dict.fromkeys(("Lock", "SequentialLock"), A_LOCKS | {"contenders", "guard"}),
}


def members(kind: type) -> Iterator[tuple[str, object]]:
    """The methods and properties of a class that zkwire itself gives it, the nearest ones."""
    seen = set[str]()
    for cls in kind.__mro__:
        if cls.__module__.partition(".")[0] == "zkwire":
            for name, member in vars(cls).items():
                method = inspect.isroutine(member) and not inspect.ismemberdescriptor(member)
                if name.startswith("_") or not (method or isinstance(member, property)):
                    continue
                if name not in seen:
                    seen.add(name)
                    yield name, member


def test_the_public_names() -> None:
    assert set(zkwire.__all__) == PUBLIC
    assert len(set(zkwire.__all__)) == len(zkwire.__all__)


def test_star() -> None:
    names: dict[str, object] = {}
    exec("from zkwire import *", names)
    assert set(names) - {"__builtins__"} == PUBLIC


def test_each_name_comes_from_the_module_that_the_table_names() -> None:
    assert list(zkwire._HOMES) == zkwire.__all__
    for name, module in zkwire._HOMES.items():
        value = getattr(import_module(module), name)
        assert value is getattr(zkwire, name)
        assert getattr(value, "__module__", module) == module or name in LOCKS | OF_A_MULTI


def test_the_api_page_names_each_module_once() -> None:
    """The page then shows all public names, since it shows those of a module together."""
    page = (ROOT / "docs" / "api.md").read_text()
    modules = " ".join(re.findall(r"```{api} (.+)", page)).split()
    assert sorted(f"zkwire.{name}" for name in modules) == sorted(set(zkwire._HOMES.values()))


def test_a_name_that_is_none() -> None:
    with pytest.raises(AttributeError, match="no attribute 'NoSuchThing'"):
        getattr(zkwire, "NoSuchThing")  # noqa: B009 - a type checker knows that it is none
    assert set(dir(zkwire)) >= PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_can_be_used_and_looked_up(name: str) -> None:
    value = getattr(zkwire, name)
    if name in CONSTANTS:
        assert isinstance(value, tuple)
        return
    function = name in FUNCTIONS | OF_A_MULTI
    assert value.__doc__ if function else vars(value).get("__doc__"), "a docstring of its own"
    assert not value.__name__.startswith("_")
    if name not in {"Lock", "AsyncLock"} | OF_A_MULTI:
        assert value.__name__ == name


@pytest.mark.parametrize("name", sorted(PUBLIC - CONSTANTS - FUNCTIONS - OF_A_MULTI))
def test_the_members_of_a_public_class_are_documented(name: str) -> None:
    kind = getattr(zkwire, name)
    for member_name, member in members(kind):
        assert inspect.getdoc(member), f"{name}.{member_name}"


def test_every_error_is_public() -> None:
    all_errors = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.ZooKeeperError)
    }
    assert all_errors == ERRORS


def test_the_lock_is_the_sequential_one() -> None:
    assert zkwire.Lock is zkwire.SequentialLock
    assert zkwire.AsyncLock is zkwire.AsyncSequentialLock


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_members(name: str) -> None:
    kind = getattr(zkwire, name)
    assert {member for member, _ in members(kind)} == MEMBERS[name]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (zkwire.Watch, {"callback", "close", "closed", "ready", "take", "wait"}),
        (zkwire.Lost, {"add_callback", "is_set", "ready", "reason", "wait"}),
    ],
)
def test_users_see_nothing_of_what_is_for_drivers(kind: type, names: set[str]) -> None:
    """Neither in an editor nor in `help`."""
    assert {name for name in dir(kind) if not name.startswith("_")} == names


@pytest.mark.parametrize("name", ["Client", "Transaction", *sorted(LOCKS)])
def test_context_managers(name: str) -> None:
    assert {"__enter__", "__exit__"} <= set(dir(getattr(zkwire, name)))


def test_a_watch_is_iterable() -> None:
    assert hasattr(zkwire.Watch, "__iter__")


# --- operations -----------------------------------------------------------------------------------


def test_the_operations() -> None:
    assert {name for name, _ in members(Operations)} == OPERATIONS
    assert {name for name, _ in members(Pipeline)} >= OPERATIONS


def shape(function: Callable[..., object]) -> list[tuple[str, object, object]]:
    parameters = inspect.signature(function).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in parameters]


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_an_operation_is_the_same_everywhere(name: str) -> None:
    """Same names, same order, same defaults; and one documentation."""
    one, other = getattr(zkwire.Client, name), getattr(Operations, name)
    assert shape(one) == shape(other)
    assert getattr(Pipeline, name) is other
    assert one.__doc__ == other.__doc__


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_an_operation_says_how_it_can_end(name: str) -> None:
    doc = inspect.getdoc(getattr(Operations, name)) or ""
    another = re.search(r"as (?:for )?:meth:`(\w+)`", doc)
    if another:
        doc += inspect.getdoc(getattr(Operations, another[1])) or ""
    for said in ("Refused with", "Lost connection", "[Tt]ime limit"):
        assert re.search(said, doc), said


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_the_arguments_of_an_operation(name: str) -> None:
    """What it is about first; whatever is a flag, or may be left out of a read, only by name."""
    _, *parameters = inspect.signature(getattr(Operations, name)).parameters.values()
    first = FIRST_ARGUMENT.get(name, "path")
    if first is not None:
        assert parameters.pop(0).name == first
    if name == "add_watch":
        assert parameters.pop(0).name == "watch", "without one there is nothing to add"
    for parameter in parameters:
        by_position = parameter.name in BY_POSITION and name != "reconfig"
        assert (parameter.kind is parameter.POSITIONAL_OR_KEYWORD) == by_position
        assert by_position or parameter.name in FLAGS or name == "reconfig"


def test_versions_are_any_unless_said_otherwise() -> None:
    for name in OPERATIONS:
        version = inspect.signature(getattr(Operations, name)).parameters.get("version")
        assert version is None or version.default == -1


# --- the rest -------------------------------------------------------------------------------------


def test_results_are_tuples() -> None:
    for name in VALUES - {"EventType", "Perms", "State", "WatchType"}:
        assert issubclass(getattr(zkwire, name), tuple)
    for name in ("ACL", "ClientInfo", "Credentials", "Event", "Id", "Stat", "TraceFrame"):
        assert issubclass(getattr(zkwire, name), Record)


def test_the_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert zkwire.__version__ == project["version"]


def test_types_are_promised() -> None:
    assert (ROOT / "zkwire" / "py.typed").exists()


# --- what help tells ------------------------------------------------------------------------------

COROUTINES = {"connect", "close", "detach", "wait_for_state", "ensure_path", "delete_tree"}


def stated(function: Callable[..., object]) -> str:
    """The signature of a function as help shows it, in one line."""
    text = pydoc.plain(pydoc.render_doc(function))
    return " ".join(text.partition("\n\n")[2].split()).replace("'", "")


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_help_tells_what_an_operation_returns(name: str) -> None:
    blocking, ours = getattr(zkwire.Client, name), getattr(Operations, name)
    result = inspect.signature(ours).return_annotation
    assert result.startswith("Reply["), result
    assert inspect.signature(blocking) == inspect.signature(ours).replace(
        return_annotation=result[len("Reply[") : -1]
    )
    assert f"-> {result[len('Reply[') : -1]} " in stated(blocking)
    assert f"-> {result} " in stated(getattr(zkwire.AsyncClient, name))
    assert blocking.__doc__ == ours.__doc__
    assert blocking.__code__ is ours.__code__, "a function stands around it"


@pytest.mark.parametrize("name", sorted(COROUTINES))
def test_help_tells_what_waits(name: str) -> None:
    blocking, ours = getattr(zkwire.Client, name), getattr(zkwire.AsyncClient, name)
    assert inspect.iscoroutinefunction(ours)
    assert not inspect.iscoroutinefunction(blocking)
    assert inspect.signature(blocking) == inspect.signature(ours)
    assert blocking.__doc__ == ours.__doc__ != ""


def test_help_tells_of_the_walk_and_of_the_pipeline() -> None:
    assert "-> Iterator[str]" in stated(zkwire.Client.walk)
    assert "-> AsyncIterator[str]" in stated(zkwire.AsyncClient.walk)
    shown = pydoc.plain(pydoc.render_doc(zkwire.Client))
    assert "replies = [client.pipeline.get_data(path) for path in paths]" in shown
    assert "Reply[" not in shown
