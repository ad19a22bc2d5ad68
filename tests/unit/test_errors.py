"""What can go wrong: every code, the tree, what an error carries and says."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from zkwire import errors
from zkwire.errors import (
    SERVER_ERRORS,
    MultiError,
    NoNodeError,
    ServerError,
    ZooKeeperError,
    error_for,
)

ROOT = Path(__file__).resolve().parents[2]

# What servers refuse with.
CODES = """
    -2 RuntimeInconsistency, -3 DataInconsistency, -5 Marshalling, -6 Unimplemented,
    -7 ServerTimeout, -8 BadArguments, -12 UnknownSession, -13 NewConfigNoQuorum,
    -14 ReconfigInProgress, -101 NoNode, -102 NoAuth, -103 BadVersion,
    -108 NoChildrenForEphemerals, -110 NodeExists, -111 NotEmpty, -114 InvalidACL,
    -118 SessionMoved, -119 NotReadOnly, -120 EphemeralOnLocalSession, -121 NoWatcher,
    -122 RequestTimeout, -123 ReconfigDisabled, -125 QuotaExceeded, -127 ThrottledOp
"""
# Codes that no server sends: they are ServerErrors that keep their number.
NOT_SENT = {-1, -4, -9, -15, -100, -113, -116, -117}
# About the session.
NO_REFUSALS = {
    -112: errors.SessionExpiredError,
    -115: errors.AuthFailedError,
    -124: errors.AuthFailedError,
}


ALL = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ZooKeeperError)
]


def made(kind: type[ZooKeeperError]) -> ZooKeeperError:
    """An error as zkwire makes it."""
    if issubclass(kind, MultiError):
        return kind([None, NoNodeError(op="get_data", path="/a")], 1)
    if issubclass(kind, ServerError):
        return kind(op="get_data", path="/a")
    return kind("what to do next", op="get_data", path="/a", maybe_applied=True)


@pytest.mark.parametrize("code", [*range(-150, 0), -999, 1, 2**31 - 1, -(2**31)])
def test_any_code_is_an_error_that_says_where(code: int) -> None:
    error = error_for(code, "create", "/some/path")
    assert (error.op, error.path, error.maybe_applied) == ("create", "/some/path", False)
    assert str(error).startswith("create /some/path: ")
    assert type(error) is NO_REFUSALS.get(code, SERVER_ERRORS.get(code, ServerError))
    if isinstance(error, ServerError):
        assert error.code == code
    if code not in {*SERVER_ERRORS, *NO_REFUSALS, *NOT_SENT}:
        assert f"error code {code}," in str(error)


def test_no_code_is_missing_or_there_twice() -> None:
    known = ", ".join(f"{code} {kind.__name__[:-5]}" for code, kind in SERVER_ERRORS.items())
    assert known == " ".join(CODES.split())
    assert {*SERVER_ERRORS.values()} == {*ServerError.__subclasses__()} - {MultiError}


BASES: dict[type, tuple[type, ...]] = {
    ServerError: (ZooKeeperError,),
    errors.NotSentError: (errors.ConnectionLossError, ZooKeeperError),
    errors.OutcomeUnknownError: (errors.ConnectionLossError, ZooKeeperError),
    errors.OperationTimeoutError: (ZooKeeperError, TimeoutError),
    errors.ForkedError: (errors.ClientClosedError,),
    errors.ReplyTooLargeError: (errors.ProtocolError,),
    errors.GarbledError: (errors.OutcomeUnknownError,),
    MultiError: (ServerError,),
    errors.LockTimeoutError: (errors.LockTakenError, errors.OperationTimeoutError),
    errors.UnreachableError: (errors.NotSentError, errors.OperationTimeoutError),
}


def test_different_answers_are_not_confused() -> None:
    """Who catches "refused" or "not sent" must not get something that may have been executed."""
    for derived, bases in BASES.items():
        assert all(issubclass(derived, base) for base in bases)
    assert not issubclass(errors.OutcomeUnknownError, errors.NotSentError)
    assert not issubclass(errors.NotSentError, errors.OutcomeUnknownError)
    assert not issubclass(errors.GarbledError, errors.NotSentError | errors.ProtocolError)
    for kind in ALL:
        if issubclass(kind, ServerError):
            assert not issubclass(
                kind, errors.ConnectionLossError | TimeoutError | errors.ProtocolError
            )
        # A wrong argument is the caller's mistake, nothing about the outside world is.
        assert not issubclass(kind, ValueError | TypeError)
    own = {kind.__name__ for kind in ALL if issubclass(kind, OSError)}
    assert own == {"OperationTimeoutError", "UnreachableError", "LockTimeoutError"}


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    tree = errors.__doc__ or ""
    for kind in ALL:
        if ServerError not in kind.__bases__:
            assert kind.__name__ in tree


# All but the one that is made of others.
SINGLE = [kind for kind in ALL if kind is not MultiError]


@pytest.mark.parametrize("kind", SINGLE)
def test_every_error_carries_and_shows_where_or_does_without(kind: type[ZooKeeperError]) -> None:
    error = made(kind)
    assert (error.op, error.path) == ("get_data", "/a")
    assert str(error).startswith("get_data /a: ")
    assert len(str(error)) > len("get_data /a: ") + 5
    assert error.maybe_applied is not isinstance(error, ServerError)
    assert str(kind("no", op="close_session")) == "close_session: no"
    error = kind("the message")
    assert str(error) == "the message"
    assert (error.op, error.path, error.maybe_applied) == (None, None, False)


def test_a_server_error_says_what_is_wrong() -> None:
    assert str(NoNodeError(op="delete", path="/a")) == "delete /a: There is no such node."
    assert str(NoNodeError("gone")) == "gone"
    unknown = ServerError(code=-999, op="delete", path="/a")
    assert str(unknown) == "delete /a: refused with error code -999, unknown to this client"
    assert str(ServerError(code=-4)).endswith("; a change may still be executed")


@pytest.mark.parametrize(
    ("code", "op", "path", "message"),
    [
        (-120, "create2", "/a", "this session is a local one, which cannot own"),
        (-101, "create", "/no/a", "the parent /no does not exist; ensure_path('/no') creates it"),
        (-101, "create_ttl", "/no/a/", "the parent /no/a does not exist; ensure_path"),
        (-101, "create2", "/a", "the chroot does not exist; ensure_path('/') creates it"),
        (-101, "get_data", "/", "the chroot does not exist"),
        (-101, "get_data", "/a", "There is no such node."),
        (
            -101,
            "get_data",
            "/zookeeper/config",
            "there is no such node; perhaps the server is older than 3.5",
        ),
        (-8, "delete", "/zookeeper", "the server keeps this node for itself"),
        (-8, "delete", "/zookeeper/quota", "the server keeps this node for itself"),
        (-8, "delete", "/zookeepers", "The server does not accept the arguments."),
        (
            -5,
            "multi",
            "",
            "the server could not read it, or failed inside; perhaps it is older than 3.5",
        ),
        (-5, "set_data", "/a", "The server could not read the request"),
        (-8, "reconfig", "", "The server does not accept the arguments."),
    ],
)
def test_a_refusal_names_what_the_request_was_about(
    code: int, op: str, path: str, message: str
) -> None:
    assert str(errors.error_for(code, op, path)).startswith(
        f"{op} {path}".rstrip() + ": " + message
    )


def test_a_refused_multi_says_which_operation_is_to_blame() -> None:
    culprit = NoNodeError(op="create", path="/a/b")
    skipped = errors.RuntimeInconsistencyError(op="delete", path="/c")
    error = MultiError([None, culprit, skipped], 1)
    assert (error.index, error.code, error.op, error.path) == (1, -101, "multi", None)
    assert error.maybe_applied is False
    assert error.results == [None, culprit, skipped]
    assert error.__cause__ is culprit
    assert "operation 1" in str(error)
    assert str(culprit) in str(error)


def test_an_error_of_somebody_elses() -> None:
    class OwnError(NoNodeError):
        pass

    assert str(OwnError()) == "OwnError"
    assert OwnError().code == -101


@pytest.mark.parametrize("kind", ALL)
def test_errors_travel_between_processes(kind: type[ZooKeeperError]) -> None:
    """Errors within an error are equal only to themselves."""
    for error in (made(kind), ServerError(code=-999)):
        for other in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
            assert (type(other), str(other)) == (type(error), str(error))
            assert str(sorted(vars(other).items())) == str(sorted(vars(error).items()))
            assert type(other.__cause__) is type(error.__cause__)


def test_errors_without_docstrings() -> None:
    """Python drops them under -OO; the errors must do without."""
    script = "import zkwire; print(zkwire.NoNodeError(op='delete', path='/a'))"
    run = subprocess.run(
        [sys.executable, "-OO", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.stdout.strip() == "delete /a: NoNodeError", run.stderr
