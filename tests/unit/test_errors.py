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
    AuthFailedError,
    ClientClosedError,
    ConnectionLossError,
    ForkedError,
    GarbledError,
    LockCancelledError,
    LockLostError,
    LockTakenError,
    LockTimeoutError,
    MultiError,
    NoNodeError,
    NotSentError,
    OperationTimeoutError,
    OutcomeUnknownError,
    ProtocolError,
    ReplyTooLargeError,
    SequenceExhaustedError,
    ServerError,
    SessionExpiredError,
    UnreachableError,
    ZooKeeperError,
    error_for,
)

ROOT = Path(__file__).resolve().parents[2]

# Every code there is. Those that no server sends are ServerErrors that keep their number.
CODES: dict[int, type[ZooKeeperError]] = {
    -1: ServerError,  # a mark of a range
    -2: errors.RuntimeInconsistencyError,
    -3: errors.DataInconsistencyError,
    -4: ServerError,  # the Java client's own: connection loss
    -5: errors.MarshallingError,
    -6: errors.UnimplementedError,
    -7: errors.ServerTimeoutError,
    -8: errors.BadArgumentsError,
    -9: ServerError,  # the C client's own: invalid state
    -12: errors.UnknownSessionError,
    -13: errors.NewConfigNoQuorumError,
    -14: errors.ReconfigInProgressError,
    -15: ServerError,  # the C client's own: TLS
    -100: ServerError,  # a mark of a range
    -101: errors.NoNodeError,
    -102: errors.NoAuthError,
    -103: errors.BadVersionError,
    -108: errors.NoChildrenForEphemeralsError,
    -110: errors.NodeExistsError,
    -111: errors.NotEmptyError,
    -112: errors.SessionExpiredError,
    -113: ServerError,  # unused
    -114: errors.InvalidACLError,
    -115: errors.AuthFailedError,
    -116: ServerError,  # the C client's own: closing
    -117: ServerError,  # the C client's own: nothing
    -118: errors.SessionMovedError,
    -119: errors.NotReadOnlyError,
    -120: errors.EphemeralOnLocalSessionError,
    -121: errors.NoWatcherError,
    -122: errors.RequestTimeoutError,
    -123: errors.ReconfigDisabledError,
    -124: errors.AuthFailedError,
    -125: errors.QuotaExceededError,
    -127: errors.ThrottledOpError,
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


def shown(values: dict[str, object]) -> dict[str, str]:
    """What an error carries, for comparison: errors within it are equal only to themselves."""
    return {name: repr(value) for name, value in values.items()}


# --- codes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_its_error(code: int) -> None:
    error = error_for(code, "create", "/a")
    assert type(error) is CODES[code]
    assert isinstance(error, ServerError) == (code not in {-112, -115, -124})
    if isinstance(error, ServerError):
        assert error.code == code


@pytest.mark.parametrize("code", [*range(-150, 0), -999, 1, 2**31 - 1, -(2**31)])
def test_any_code_is_an_error_that_says_where(code: int) -> None:
    error = error_for(code, "create", "/some/path")
    assert (error.op, error.path, error.maybe_applied) == ("create", "/some/path", False)
    assert str(error).startswith("create /some/path: ")
    if isinstance(error, ServerError):
        assert error.code == code
    if code not in CODES:
        assert type(error) is ServerError
        assert f"error code {code}," in str(error)


def test_no_code_is_missing_or_there_twice() -> None:
    known = {code: kind for code, kind in CODES.items() if issubclass(kind, ServerError)}
    assert known | {0: ServerError} == {
        **dict.fromkeys((0, -1, -4, -9, -15, -100, -113, -116, -117), ServerError),
        **SERVER_ERRORS,
    }
    assert set(SERVER_ERRORS.values()) == {*ServerError.__subclasses__()} - {MultiError}


# --- the tree -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (ServerError, ZooKeeperError),
        (ConnectionLossError, ZooKeeperError),
        (NotSentError, ConnectionLossError),
        (OutcomeUnknownError, ConnectionLossError),
        (OperationTimeoutError, ZooKeeperError),
        (OperationTimeoutError, TimeoutError),
        (SessionExpiredError, ZooKeeperError),
        (AuthFailedError, ZooKeeperError),
        (ClientClosedError, ZooKeeperError),
        (ForkedError, ClientClosedError),
        (ProtocolError, ZooKeeperError),
        (ReplyTooLargeError, ProtocolError),
        (GarbledError, OutcomeUnknownError),
        (MultiError, ServerError),
        (LockLostError, ZooKeeperError),
        (LockTakenError, ZooKeeperError),
        (LockCancelledError, ZooKeeperError),
        (LockTimeoutError, LockTakenError),
        (LockTimeoutError, OperationTimeoutError),
        (UnreachableError, NotSentError),
        (UnreachableError, OperationTimeoutError),
        (SequenceExhaustedError, ZooKeeperError),
    ],
)
def test_relations(kind: type, base: type) -> None:
    assert issubclass(kind, base)


def test_different_answers_are_not_confused() -> None:
    """Who catches "refused" or "not sent" must not get something that may have been executed."""
    assert not issubclass(OutcomeUnknownError, NotSentError)
    assert not issubclass(NotSentError, OutcomeUnknownError)
    assert not issubclass(GarbledError, NotSentError | ProtocolError)
    for kind in ALL:
        if issubclass(kind, ServerError):
            assert not issubclass(kind, ConnectionLossError | TimeoutError | ProtocolError)
        # A wrong argument is the caller's mistake, nothing about the outside world is.
        assert not issubclass(kind, ValueError | TypeError)
    own = {kind.__name__ for kind in ALL if issubclass(kind, OSError)}
    assert own == {"OperationTimeoutError", "UnreachableError", "LockTimeoutError"}


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    tree = errors.__doc__ or ""
    for kind in ALL:
        if ServerError not in kind.__bases__:
            assert kind.__name__ in tree


# --- what an error carries ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ALL)
def test_every_error_is_documented(kind: type[ZooKeeperError]) -> None:
    assert kind.__doc__


# All but the one that is made of others.
SINGLE = [kind for kind in ALL if kind is not MultiError]


@pytest.mark.parametrize("kind", SINGLE)
def test_every_error_carries_and_shows_where(kind: type[ZooKeeperError]) -> None:
    error = made(kind)
    assert (error.op, error.path) == ("get_data", "/a")
    assert str(error).startswith("get_data /a: ")
    assert len(str(error)) > len("get_data /a: ") + 5
    assert error.maybe_applied is not isinstance(error, ServerError)


@pytest.mark.parametrize("kind", SINGLE)
def test_every_error_can_do_without(kind: type[ZooKeeperError]) -> None:
    error = kind("the message")
    assert str(error) == "the message"
    assert (error.op, error.path, error.maybe_applied) == (None, None, False)


def test_an_operation_without_a_path() -> None:
    assert str(NotSentError("no", op="close_session")) == "close_session: no"


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


def test_a_refused_multi_travels_whole() -> None:
    error = MultiError([None, NoNodeError(op="create", path="/a")], 1)
    for other in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is MultiError
        assert (other.index, other.code, str(other)) == (1, -101, str(error))
        assert other.results[0] is None
        assert str(other.results[1]) == str(error.results[1])
        assert type(other.__cause__) is NoNodeError


def test_an_error_of_somebody_elses() -> None:
    class OwnError(NoNodeError):
        pass

    assert str(OwnError()) == "OwnError"
    assert OwnError().code == -101


@pytest.mark.parametrize("kind", ALL)
def test_errors_travel_between_processes(kind: type[ZooKeeperError]) -> None:
    error = made(kind)
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is kind
        assert str(other) == str(error)
        assert shown(vars(other)) == shown(vars(error))
    unknown = pickle.loads(pickle.dumps(ServerError(code=-999)))
    assert unknown.code == -999


def test_errors_without_docstrings() -> None:
    """Python drops them under -OO; the errors must do without."""
    script = "import zkwire; print(zkwire.NoNodeError(op='delete', path='/a'))"
    run = subprocess.run(
        [sys.executable, "-OO", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.stdout.strip() == "delete /a: NoNodeError", run.stderr
