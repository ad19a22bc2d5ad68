"""kazoo's requests as operations of zkwire, and what zkwire answers as what kazoo returns.

Decides which operation a request is, and which of kazoo's exceptions an error is.  It must not know
sessions or states: :mod:`zkwire.kazoo.engine` does.
"""

# kazoo has no types, so its values are Any here.
# pyright: basic, reportMissingTypeStubs=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

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


class Requests:
    """Submits kazoo's requests to one client of zkwire.

    kazoo puts its ``chroot`` before each path by itself, and so does the client; ``watcher`` makes
    of a function of kazoo's one that zkwire calls.
    """

    def __init__(
        self, client: zk.Client, chroot: str, watcher: Callable[[Any], Callable[[zk.Event], object]]
    ) -> None:
        self._pipeline: Any = client.pipeline
        self._chroot = chroot
        self._watcher = watcher

    def submit(self, request: Any) -> tuple[Any, Convert]:
        """The reply to come, and what turns its result into kazoo's.

        NotImplementedError for a request that kazoo itself does not have; ValueError or TypeError
        for arguments that zkwire does not send.
        """
        method = self._methods.get(type(request))
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

    def _create(self, r: Any) -> tuple[Any, Convert]:
        reply = self._pipeline.create(self._inner(r.path), r.data, _acl(r.acl), **_mode(r.flags))
        return reply, self._outer if self._chroot else _same

    def _create2(self, r: Any) -> tuple[Any, Convert]:
        path, acl = self._inner(r.path), _acl(r.acl)
        reply = self._pipeline.create_with_stat(path, r.data, acl, **_mode(r.flags))
        return reply, lambda answer: (self._outer(answer[0]), _stat(answer[1]))

    def _delete(self, r: Any) -> tuple[Any, Convert]:
        return self._pipeline.delete(self._inner(r.path), r.version), _true

    def _exists(self, r: Any) -> tuple[Any, Convert]:
        return self._pipeline.exists(self._inner(r.path), watch=self._watch(r)), _stat

    def _get_data(self, r: Any) -> tuple[Any, Convert]:
        return self._pipeline.get_data(self._inner(r.path), watch=self._watch(r)), _data

    def _set_data(self, r: Any) -> tuple[Any, Convert]:
        return self._pipeline.set_data(self._inner(r.path), r.data, r.version), _stat

    def _get_children(self, r: Any) -> tuple[Any, Convert]:
        return self._pipeline.get_children(self._inner(r.path), watch=self._watch(r)), _same

    def _get_children2(self, r: Any) -> tuple[Any, Convert]:
        path, watch = self._inner(r.path), self._watch(r)
        return self._pipeline.get_children_with_stat(path, watch=watch), _with_stat

    def _get_acl(self, r: Any) -> tuple[Any, Convert]:
        return self._pipeline.get_acl(self._inner(r.path)), _acls_and_stat

    def _set_acl(self, r: Any) -> tuple[Any, Convert]:
        return self._pipeline.set_acl(self._inner(r.path), _acl(r.acls), r.version), _stat

    def _sync(self, r: Any) -> tuple[Any, Convert]:
        return self._pipeline.sync(self._inner(r.path)), lambda _: r.path

    def _auth(self, r: Any) -> tuple[Any, Convert]:
        return self._pipeline.add_auth(r.scheme, secret(r.auth)), _true

    def _reconfig(self, r: Any) -> tuple[Any, Convert]:
        reply = self._pipeline.reconfig(
            joining=_names(r.joining),
            leaving=_names(r.leaving),
            members=_names(r.new_members),
            version=r.config_id,
        )
        return reply, _with_stat

    def _transaction(self, r: Any) -> tuple[Any, Convert]:
        # kazoo's connection takes the chroot off these paths, so they stay as zkwire gives them.
        return self._pipeline.multi([self._operation(one) for one in r.operations]), _results

    def _operation(self, r: Any) -> Any:
        """One operation of a transaction."""
        path = self._inner(r.path)
        if isinstance(r, ks.Create):
            return zk.Create(path, r.data, _acl(r.acl), **_mode(r.flags))
        if isinstance(r, ks.SetData):
            return zk.SetData(path, r.data, r.version)
        return (zk.Delete if isinstance(r, ks.Delete) else zk.Check)(path, r.version)

    _methods: ClassVar[dict[type, Callable[[Requests, Any], tuple[Any, Convert]]]] = {
        ks.Create: _create,
        ks.Create2: _create2,
        ks.Delete: _delete,
        ks.Exists: _exists,
        ks.GetData: _get_data,
        ks.SetData: _set_data,
        ks.GetChildren: _get_children,
        ks.GetChildren2: _get_children2,
        ks.GetACL: _get_acl,
        ks.SetACL: _set_acl,
        ks.Sync: _sync,
        ks.Auth: _auth,
        ks.Reconfig: _reconfig,
        ks.Transaction: _transaction,
    }


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
