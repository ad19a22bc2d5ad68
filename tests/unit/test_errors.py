"""What can go wrong: every code, the tree, what an error carries and says."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from zkwire import errors
from zkwire.errors import SERVER_ERRORS, MultiError, NoNodeError, ServerError, ZooKeeperError

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


REFUSALS = [
    (-120, "create2 /a", "this session is a local one, which cannot own"),
    (-101, "create /no/a", "the parent /no does not exist; ensure_path('/no') creates it"),
    (-101, "create_ttl /no/a/", "the parent /no/a does not exist; ensure_path"),
    (-101, "create2 /a", "the chroot does not exist; ensure_path('/') creates it"),
    (-101, "get_data /", "the chroot does not exist"),
    (-101, "get_data /a", "There is no such node."),
    (-101, "get_data /zookeeper/config", "there is no such node; perhaps the server is older"),
    (-8, "delete /zookeeper", "the server keeps this node for itself"),
    (-8, "delete /zookeeper/quota", "the server keeps this node for itself"),
    (-8, "delete /zookeepers", "The server does not accept the arguments."),
    (-5, "multi", "the server could not read it, or failed inside; perhaps it is older than 3.5"),
    (-5, "set_data /a", "The server could not read the request"),
    (-8, "reconfig", "The server does not accept the arguments."),
]


def test_a_refusal_names_what_the_request_was_about() -> None:
    for code, request, message in REFUSALS:
        op, _, path = request.partition(" ")
        assert str(errors.error_for(code, op, path)).startswith(f"{request}: {message}")


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
