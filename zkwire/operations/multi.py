"""Several operations in one request: all or nothing (multi), or only together (multi_read).

An operation of a multi has the arguments that it has as a method of the client, and the same code
checks and encodes it: a :class:`Recorder` keeps the request instead of sending it.  This module
decides which operations may stand in a multi and what its answer means for each.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from types import NoneType

from zkwire import errors
from zkwire.jute import records as r
from zkwire.jute.multi import MultiResponse, pack_multi
from zkwire.jute.records import ACL, ErrorResponse
from zkwire.operations.nodes import EPHEMERAL, SEQUENTIAL, Nodes, Requests, check_version
from zkwire.session.request import ANSWERED, Refused, Request
from zkwire.wire import ops

TYPE_CHECKING = bool()
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, Concatenate, Final, NoReturn, ParamSpec

    from zkwire.operations.nodes import Reply
    from zkwire.session.waitable import Watch
    from zkwire.wire.ops import Op

    _P = ParamSpec("_P")

_LENGTH = Struct(">i")  # of a path or of data, in front of it
_NOT_ATTEMPTED = errors.RuntimeInconsistencyError.code
_OF_EPHEMERALS = (EPHEMERAL, EPHEMERAL | SEQUENTIAL)


class RecordedCall(Request):
    """One operation of a multi; it has a ``result`` once the multi is answered."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> Any:
        """The operation's result, or its error; RuntimeError before the multi has ended."""
        return self.value()


class Recorder(Nodes):
    """Keeps requests of the ``allowed`` operations, in their order, for what sends them later."""

    _kind = RecordedCall

    def __init__(self, sender: Requests, allowed: set[Op]) -> None:
        self._chroot = sender._chroot
        self._acl = sender._acl
        self._send_limit = sender._send_limit
        self._allowed = allowed
        self.requests: list[Request] = []

    def _submit(self, request: Request) -> Any:
        if request.op not in self._allowed:
            raise ValueError(f"{request.op.name} cannot be part of this: {request.path}")
        self.requests.append(request)
        return request

    def _own(self, watch: Watch) -> NoReturn:
        raise ValueError("a read of a multi_read cannot set a watch")

    def check(self, path: str, version: int = -1) -> Reply[None]:
        """Let the multi succeed only if the node exists and has this data version (-1: any).

        Refused with: NoNodeError; BadVersionError; NoAuthError.
        """
        return self._call(ops.CHECK, path, (check_version(version),))


class Operation:
    """One operation of a multi, from :data:`Create` and the others; checked when it is sent.

    Two are equal if they ask for the same, however the arguments are given.
    """

    __slots__ = ("_arguments", "_method", "_named")

    def __init__(self, method: Callable[..., object], arguments: Any, named: Any) -> None:
        self._method, self._arguments, self._named = method, arguments, named

    def __repr__(self) -> str:
        # The path alone: data may be large, and secret.
        return f"<{self._method.__name__} {self._arguments[0] if self._arguments else ''}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Operation):
            return NotImplemented
        return type(self) is type(other) and self._asked() == other._asked()

    def __hash__(self) -> int:
        arguments = self._asked()[1]
        return hash((self._method.__name__, arguments[0] if arguments else None))

    def _asked(self) -> tuple[Callable[..., object], list[Any]]:
        """The method, and what it is called with, in the order of its parameters."""
        from inspect import signature  # not at the top: an import of zkwire is to be quick

        try:
            bound = signature(self._method).bind(None, *self._arguments, **self._named)
        except TypeError:  # arguments that are refused when it is sent
            return self._method, [*self._arguments, sorted(self._named)]
        bound.apply_defaults()
        given: list[Any] = [*bound.arguments.values()][1:]
        plain: list[Any] = [tuple(each) if each.__class__ is list else each for each in given]
        return self._method, plain

    def record(self, recorder: Recorder) -> None:
        """Call the method on the recorder."""
        self._method(recorder, *self._arguments, **self._named)


class Appended(Operation):
    """Sequential nodes of one path that differ by their data alone, which must be bytes.

    The first one is checked and encoded as any create, the others are copies with other data.
    """

    __slots__ = ()

    def __init__(self, path: str, items: Sequence[bytes], acl: Sequence[ACL] | None) -> None:
        super().__init__(Nodes.create, (path, items, acl), {})

    def record(self, recorder: Recorder) -> None:
        path, items, acl = self._arguments
        recorder.create(path, items[0], acl, sequential=True)
        if len(items) == 1:
            return
        first = recorder.requests[-1]
        at = _LENGTH.size + _LENGTH.unpack_from(first.body)[0]
        head, tail = first.body[:at], first.body[at + _LENGTH.size + len(items[0]) :]
        recorder.requests += [
            RecordedCall(
                first.op, path, b"".join((head, _LENGTH.pack(len(d)), d, tail)), first.finish
            )
            for d in items[1:]
        ]


def _operation(method: Callable[Concatenate[Any, _P], object]) -> Callable[_P, Operation]:
    """A function with the method's arguments that makes the operation."""

    def make(*arguments: _P.args, **named: _P.kwargs) -> Operation:
        return Operation(method, arguments, named)

    make.__doc__ = method.__doc__
    make.__wrapped__ = partial(method, None)  # type: ignore[attr-defined]  # for its signature
    return make


Create: Final = _operation(Nodes.create)
Delete: Final = _operation(Nodes.delete)
SetData: Final = _operation(Nodes.set_data)
Check: Final = _operation(Recorder.check)
GetData: Final = _operation(Nodes.get_data)
GetChildren: Final = _operation(Nodes.get_children)

_CREATES = {ops.CREATE, ops.CREATE_CONTAINER, ops.CREATE_TTL}
_CREATED = (r.CreateResponse, r.Create2Response)  # 3.8.0 answers some of them without a stat
WRITES = {*_CREATES, ops.DELETE, ops.SET_DATA, ops.CHECK}
_READS = {ops.GET_DATA, ops.GET_CHILDREN}


class Multi(Requests):
    """Several operations in one request."""

    def multi(self, operations: Iterable[Operation]) -> Reply[list[Any]]:
        """Execute ``Create``, ``Delete``, ``SetData`` and ``Check`` operations, all or none.

            client.multi([Check("/config", 3), SetData("/config", b"new"), Delete("/old")])

        Returns their results in order: a path, a stat, or None.  Later ones see the changes of
        earlier ones, all have one zxid, and no reader sees a state in between.  It leaves no watch.

        Refused with: MultiError, which has each operation's own error; nothing is changed then.

        Lost connection (OutcomeUnknownError): all of it is done, or nothing.  A multi that creates
        a node of a unique name, or checks a version that it changes, lets a later read tell which.

        Time limit or cancellation: a request that was sent is still executed; proceed as after a
        lost connection.
        """
        return self._multi(ops.MULTI, WRITES, operations)

    def multi_read(self, operations: Iterable[Operation]) -> Reply[list[Any]]:
        """Execute ``GetData`` and ``GetChildren`` operations in one request (since 3.6).

        Returns their results in order, and a ServerError in the place of each that was refused.
        They are no snapshot: other clients' changes may be between them.  It leaves no watch.

        Refused with: UnimplementedError.

        Lost connection: call it again.  Time limit or cancellation: nothing is left.
        """
        return self._multi(ops.MULTI_READ, _READS, operations)

    def _multi(self, op: Op, allowed: set[Op], operations: Iterable[Operation]) -> Any:
        recorder = Recorder(self, allowed)
        if isinstance(operations, Operation):
            raise TypeError(f"operations must be a list, also of one: {operations!r}")
        for operation in operations:
            if not isinstance(operation, Operation):
                raise TypeError(f"not an operation such as Create(path, data): {operation!r}")
            operation.record(recorder)
        return self._send_multi(op, recorder)

    def _send_multi(self, op: Op, recorder: Recorder) -> Any:
        requests, recorder.requests = recorder.requests, []  # which refer to it: no cycle
        body = pack_multi((request.op.opcode, request.body) for request in requests)
        return self._send(op, None, body, partial(_results, op, requests))


def _results(op: Op, requests: list[Request], answers: MultiResponse) -> list[Any]:
    """The results, with an error in the place of each operation that was refused.

    A refused multi raises the one error that carries them.
    """
    if len(requests) != len(answers):
        raise _misunderstood(op, f"{len(answers)} results for {len(requests)} operations")
    results: list[Any] = []
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, ErrorResponse):
            # Code 0: it succeeded and was undone, so it ends like those that were not attempted.
            request.outcome = Refused(answer.err or _NOT_ATTEMPTED)
            refusal = _refusal(request, answer.err)
            if isinstance(refusal, errors.SessionExpiredError):
                raise refusal
            if not isinstance(refusal, errors.ServerError | None):
                raise _misunderstood(op, f"{request.op.name} was refused with {answer.err}")
            results.append(refusal)
            continue
        expected = _CREATED if request.op in _CREATES else request.op.reply or NoneType
        if not isinstance(answer, expected):
            raise _misunderstood(op, f"{request.op.name} was answered by {type(answer).__name__}")
        request.record, request.outcome = answer, ANSWERED
        results.append(request.value())
    refused = [
        index for index, result in enumerate(results) if isinstance(result, errors.ServerError)
    ]
    if refused and op is ops.MULTI:
        culprits = [index for index in refused if results[index].code != _NOT_ATTEMPTED]
        raise errors.MultiError(results, (culprits or refused)[0])
    return results


def _refusal(request: Request, code: int) -> errors.ZooKeeperError | None:
    """What became of one operation of a refused multi; None: it is undone or was not attempted."""
    if code == errors.SESSION_EXPIRED and request.create_flags in _OF_EPHEMERALS:
        path = request.path
        return errors.EphemeralOnLocalSessionError(
            errors.AS_IF_EXPIRED, op=request.op.name, path=path
        )
    return request.error() if code else None


def _misunderstood(op: Op, message: str) -> errors.ProtocolError:
    """The error for an answer that tells only that the server has executed something."""
    return errors.ProtocolError(message, op=op.name, maybe_applied=op.changes)
