"""kazoo's requests as operations of zkwire, and what zkwire answers as what kazoo returns.

Decides which operation a request is, and which of kazoo's exceptions an error is.  It must not know
sessions or states: :mod:`zkwire.kazoo.engine` does.
"""

# kazoo has no types, so its values are Any here.
# pyright: basic, reportMissingTypeStubs=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kazoo import exceptions as ke
from kazoo import security
from kazoo.protocol import serialization as ks
from kazoo.protocol.states import ZnodeStat

import zkwire as zk

if TYPE_CHECKING:
    from collections.abc import Callable

    Convert = Callable[[Any], object]

    class ConnectionLoss(Exception):
        """kazoo's, which has no types."""

else:
    from kazoo.exceptions import ConnectionLoss

EPHEMERAL, SEQUENTIAL = 1, 2  # in the flags of kazoo's Create


class NotSent(ConnectionLoss):
    """The request has not left this process as a whole, so it is not executed: repeat it safely."""

    maybe_applied: bool = False


class OutcomeUnknown(ConnectionLoss):
    """The request was sent and its answer was lost: it may have been executed, or be so yet.

    ``maybe_applied`` is False for a read.
    """

    maybe_applied: bool = True


_KINDS: list[tuple[type[zk.ZooKeeperError], type[Exception]]] = [
    (zk.NotSentError, NotSent),
    (zk.ConnectionLossError, OutcomeUnknown),
    (zk.SessionExpiredError, ke.SessionExpiredError),
    (zk.AuthFailedError, ke.AuthFailedError),
    (zk.ClientClosedError, ke.ConnectionClosedError),
    (zk.OperationTimeoutError, ke.OperationTimeoutError),
]


def translated(error: zk.ZooKeeperError) -> Exception:
    """The exception of kazoo's that this is; it has ``maybe_applied`` as well."""
    if isinstance(error, zk.ServerError):
        known = error.code in ke.EXCEPTIONS  # which is a defaultdict that raises
        kind = ke.EXCEPTIONS[error.code] if known else ke.ZookeeperError
    else:
        found = (mine for theirs, mine in _KINDS if isinstance(error, theirs))
        kind = next(found, ke.ZookeeperError)
    new: Any = kind(str(error))
    new.__cause__ = error
    new.maybe_applied = error.maybe_applied
    return new


def refused_arguments(error: Exception) -> Exception:
    """What kazoo would have got from the server for arguments that zkwire does not send."""
    new: Any = ke.BadArgumentsError(str(error))
    new.__cause__ = error
    new.maybe_applied = False
    return new


def outcome(reply: Any, convert: Convert) -> tuple[object, Exception | None]:
    """Wait for the reply: kazoo's value, or kazoo's exception."""
    try:
        return convert(reply.result()), None
    except zk.MultiError as error:
        return [_refusal(error, index) for index in range(len(error.results))], None
    except zk.ZooKeeperError as error:
        return None, translated(error)
    except Exception as error:  # an answer that nobody expects, or a wait that is refused
        if not reply.ready:
            raise
        return None, error


def _refusal(error: zk.MultiError, index: int) -> Exception:
    """What kazoo has in the place of one operation of a transaction that was refused."""
    refusal = error.results[index]
    if index == error.index and refusal is not None:
        return translated(refusal)
    return ke.RolledBackError() if index < error.index else ke.RuntimeInconsistency()


# --- values ---------------------------------------------------------------------------------------


def _stat(stat: Any) -> Any:
    return None if stat is None else tuple.__new__(ZnodeStat, stat)


def _with_stat(answer: Any) -> Any:
    return answer[0], tuple.__new__(ZnodeStat, answer[1])


def _data(answer: Any) -> Any:
    return None if answer.is_null else answer[0], tuple.__new__(ZnodeStat, answer[1])


def _same(answer: Any) -> Any:
    return answer


def _true(_: object) -> bool:
    return True


def _acl(acls: Any) -> Any:
    """kazoo's access list for zkwire."""
    if acls is security.OPEN_ACL_UNSAFE:
        return zk.OPEN_ACL_UNSAFE
    if not acls:
        raise ke.InvalidACLError("the ACL is empty")  # which zkwire does not send
    return [zk.ACL(acl.perms, zk.Id(*acl.id)) for acl in acls]


def _acls_and_stat(answer: Any) -> Any:
    entries, stat = answer
    acls = [security.ACL(int(e.perms), security.Id(e.id.scheme, e.id.id)) for e in entries]
    return acls, _stat(stat)


def _names(text: str | None) -> list[str] | None:
    return text.split(",") if text else None


# --- requests -------------------------------------------------------------------------------------


class KazooRequests:
    """Submits kazoo's requests to one client of zkwire.

    kazoo puts its ``chroot`` before each path by itself, and so does the client; ``watcher`` makes
    of a function of kazoo's one that zkwire calls.
    """

    def __init__(
        self, client: zk.Client, chroot: str, watcher: Callable[[Any], Callable[[zk.Event], object]]
    ) -> None:
        self.pipeline: Any = client.pipeline
        self._chroot = chroot
        self._watcher = watcher

    def submit(self, request: Any) -> tuple[Any, Convert]:
        """The reply to come, and what turns its result into kazoo's.

        NotImplementedError for a request that kazoo itself does not have; ValueError or TypeError
        for arguments that zkwire does not send.
        """
        method = _SUBMIT.get(type(request))
        if method is None:
            raise NotImplementedError(f"zkwire.kazoo does not know {type(request).__name__}")
        return method(self, request)

    def _inner(self, path: str) -> str:
        """The path without the chroot."""
        if not self._chroot:
            return path
        if path == self._chroot:
            return "/"
        if not path.startswith(self._chroot + "/"):
            raise ValueError(f"{path} is outside the chroot {self._chroot}")
        return path[len(self._chroot) :]

    def _outer(self, path: str) -> str:
        """The path with the chroot, which kazoo takes off again."""
        if not self._chroot:
            return path
        return self._chroot if path == "/" else self._chroot + path

    def _watch(self, request: Any) -> Any:
        return self._watcher(request.watcher) if request.watcher else None

    def _operation(self, r: Any) -> Any:
        """One operation of a transaction."""
        path = self._inner(r.path)
        if isinstance(r, ks.Create):
            return zk.Create(path, r.data, _acl(r.acl), **_mode(r.flags))
        if isinstance(r, ks.SetData):
            return zk.SetData(path, r.data, r.version)
        return (zk.Delete if isinstance(r, ks.Delete) else zk.Check)(path, r.version)


def _create(to: KazooRequests, r: Any) -> tuple[Any, Convert]:
    reply = to.pipeline.create(to._inner(r.path), r.data, _acl(r.acl), **_mode(r.flags))
    return reply, to._outer


def _create2(to: KazooRequests, r: Any) -> tuple[Any, Convert]:
    path, acl = to._inner(r.path), _acl(r.acl)
    reply = to.pipeline.create_with_stat(path, r.data, acl, **_mode(r.flags))
    return reply, lambda answer: (to._outer(answer[0]), _stat(answer[1]))


def _reconfig(to: KazooRequests, r: Any) -> tuple[Any, Convert]:
    reply = to.pipeline.reconfig(
        joining=_names(r.joining),
        leaving=_names(r.leaving),
        members=_names(r.new_members),
        version=r.config_id,
    )
    return reply, _with_stat


def _read(name: str, convert: Convert) -> Callable[[KazooRequests, Any], tuple[Any, Convert]]:
    """A request for a path, perhaps with a watch."""

    def submit(to: KazooRequests, r: Any) -> tuple[Any, Convert]:
        return getattr(to.pipeline, name)(to._inner(r.path), watch=to._watch(r)), convert

    return submit


_SUBMIT: dict[type, Callable[[KazooRequests, Any], tuple[Any, Convert]]] = {
    ks.Create: _create,
    ks.Create2: _create2,
    ks.Delete: lambda to, r: (to.pipeline.delete(to._inner(r.path), r.version), _true),
    ks.Exists: _read("exists", _stat),
    ks.GetData: _read("get_data", _data),
    ks.SetData: lambda to, r: (to.pipeline.set_data(to._inner(r.path), r.data, r.version), _stat),
    ks.GetChildren: _read("get_children", _same),
    ks.GetChildren2: _read("get_children_with_stat", _with_stat),
    ks.GetACL: lambda to, r: (to.pipeline.get_acl(to._inner(r.path)), _acls_and_stat),
    ks.SetACL: lambda to, r: (
        to.pipeline.set_acl(to._inner(r.path), _acl(r.acls), r.version), _stat,
    ),
    ks.Sync: lambda to, r: (to.pipeline.sync(to._inner(r.path)), lambda _: r.path),
    ks.Auth: lambda to, r: (to.pipeline.add_auth(r.scheme, secret(r.auth)), _true),
    ks.Reconfig: _reconfig,
    # kazoo's connection takes the chroot off these paths, so they stay as zkwire gives them.
    ks.Transaction: lambda to, r: (
        to.pipeline.multi([to._operation(one) for one in r.operations]), _results,
    ),
}  # fmt: skip


def secret(credential: str | bytes) -> bytes:
    """A credential as it is sent."""
    return credential.encode() if isinstance(credential, str) else credential


def _mode(flags: int) -> dict[str, bool]:
    return {"ephemeral": bool(flags & EPHEMERAL), "sequential": bool(flags & SEQUENTIAL)}


def _results(answers: list[Any]) -> list[Any]:
    """What a transaction returns: True for a deletion or a check."""
    return [
        True if one is None else _stat(one) if isinstance(one, zk.Stat) else one for one in answers
    ]
