"""The operations on watches alone, on the ensemble and on the session.

Decides what each of them sends and returns.  It must not know how a request travels, nor which
watches are set: :mod:`zkwire.session.watch_table` does.  What holds for every operation (order, end
of the session, ...) is said in :mod:`zkwire.operations`.
"""

from __future__ import annotations

from zkwire.jute import records as r
from zkwire.operations.nodes import Requests, as_watch, check_flag, check_text, listed
from zkwire.wire import ops
from zkwire.wire.model import DataAndStat, WatchType
from zkwire.wire.ops import WatchKind
from zkwire.wire.paths import CONFIG_NODE, strip

TYPE_CHECKING = bool()
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.operations.nodes import AnyWatch, Reply
    from zkwire.session.waitable import Watch


_PERSISTENT, _RECURSIVE = 0, 1


class Watches(Requests):
    """The operations on watches alone."""

    def add_watch(self, path: str, watch: AnyWatch, *, recursive: bool = False) -> Reply[Watch]:
        """Watch a path, with or without a node, until the watch is closed; returns the watch.

        A callable that has a watch there already gets no second one: the first is returned.

        The watch fires at every creation, change and deletion of the node, and whenever a child of
        it is created or deleted.  ``recursive``: instead, at every creation, change and deletion of
        the node and of all nodes below it.  Nodes that the client may not read send no events (from
        3.8.4 and 3.9.2 on; servers before that send them, CVE-2024-23944).

        A watch that is set outlives a lost connection: it is set again and gets an event of type
        REREAD, since a server does not report what happened meanwhile.  A path can have persistent
        or recursive watches of one client, not both (RuntimeError).

        Refused with: UnimplementedError (servers before 3.6).

        Lost connection before the answer: call it again; the lost request has not set the watch.

        Time limit or cancellation: a request that was sent still sets the watch: close it.
        """
        full = self._full(path)
        mode = _RECURSIVE if check_flag("recursive", recursive) else _PERSISTENT
        body = r.AddWatchRequest.pack(full, mode)
        kind = WatchKind.RECURSIVE if recursive else WatchKind.PERSISTENT
        return self._send(ops.ADD_WATCH, path, body, None, as_watch(watch), full, kind)

    def remove_watches(self, path: str, which: WatchType = WatchType.ANY) -> Reply[None]:
        """Remove all watches of this client on a path, of one type or of any.

        Each gets a last event, of type ``..._WATCH_REMOVED``.  To end one of several watches, close
        that one.

        Refused with: NoWatcherError (there is none); UnimplementedError (servers before 3.5).

        Lost connection, time limit, cancellation or UnimplementedError: the client has removed the
        watches, and a new connection does not set them again; nothing is left to do.
        """
        body = r.RemoveWatchesRequest.pack(self._full(path), WatchType(which))
        return self._send(ops.REMOVE_WATCHES, path, body)


class Admin(Requests):
    """The operations on ensemble and session."""

    def add_auth(self, scheme: str, secret: bytes) -> Reply[None]:
        """Authenticate, on this connection and on every later one.

        ``("digest", b"user:password")`` is :func:`zkwire.digest_auth`.  Later requests have its
        rights.  A server accepts every digest: a wrong password shows as NoAuthError later.

        Refused with: AuthFailedError (the server does not know the scheme, or rejects the
        credential): the client is done, and the server keeps the session until its timeout.

        Lost connection: the next one sends the credential again, and this call waits for that, a
        session timeout at most (then NotSentError).  Time limit or cancellation: the same; the
        credential stays.
        """
        if not isinstance(secret, bytes):
            raise TypeError(f"secret must be bytes, not {type(secret).__name__}")
        body = r.AuthPacket.pack(0, check_text("scheme", scheme), secret)
        return self._send(ops.AUTH, None, body)

    def who_am_i(self) -> Reply[list[r.ClientInfo]]:
        """The identities that the server has given this connection, by scheme and user (since 3.7).

        Refused with: UnimplementedError.

        Lost connection: call it again.  Time limit or cancellation: nothing is left.
        """
        return self._send(ops.WHO_AM_I, None, b"", listed)

    def get_ephemerals(self, prefix: str = "/") -> Reply[list[str]]:
        """The paths of this session's ephemeral nodes that begin with ``prefix`` (since 3.6).

        The prefix is text: "/a" finds "/ab" as well.

        Refused with: UnimplementedError.

        Lost connection: call it again.  Time limit or cancellation: nothing is left.
        """
        if not check_text("prefix", prefix).startswith("/"):
            raise ValueError(f"prefix must start with '/': {prefix!r}")
        body = r.GetEphemeralsRequest.pack(self._chroot + prefix)
        return self._send(ops.GET_EPHEMERALS, prefix, body, self._ephemerals)

    def _ephemerals(self, record: tuple[tuple[str, ...]]) -> list[str]:
        return [strip(self._chroot, path) for path in record[0]]

    def get_all_children_number(self, path: str) -> Reply[int]:
        """The number of nodes below ``path``, at any depth (since 3.6).

        Refused with: NoNodeError; NoAuthError; UnimplementedError.

        Lost connection: call it again.  Time limit or cancellation: nothing is left.
        """
        return self._call(ops.GET_ALL_CHILDREN_NUMBER, path, (), _number)

    def get_config(self, *, watch: AnyWatch | None = None) -> Reply[DataAndStat]:
        """The ensemble's configuration, as text in bytes, and the stat of its node (since 3.5).

        Its node is ``/zookeeper/config``, outside every chroot.  A standalone server has an empty
        one.  ``watch`` fires once, when the configuration changes.

        Refused with: NoNodeError (servers before 3.5); NoAuthError.

        Lost connection: call it again; the lost request has not set the watch.

        Time limit or cancellation: a request that was sent still sets the watch: close it.
        """
        body = r.GetDataRequest.pack(CONFIG_NODE, watch is not None)
        return self._send(ops.GET_DATA, CONFIG_NODE, body, _config, watch, CONFIG_NODE)

    def reconfig(
        self,
        *,
        joining: Sequence[str] | None = None,
        leaving: Sequence[str] | None = None,
        members: Sequence[str] | None = None,
        version: int = -1,
    ) -> Reply[DataAndStat]:
        """Change the ensemble; returns its new configuration and the stat of its node (since 3.5).

        Either ``joining`` (``["server.4=host:2888:3888;2181"]``), ``leaving`` (``["3"]``) or both,
        or all ``members``.  ``version``: the version of the configuration to change, -1 for any.

        Refused with: ReconfigDisabledError; NoAuthError; BadVersionError; BadArgumentsError;
        NewConfigNoQuorumError and ReconfigInProgressError (try again later); UnimplementedError (a
        standalone server on which it is enabled).

        Lost connection (OutcomeUnknownError): read the configuration and compare.  Time limit or
        cancellation: a request that was sent still changes the ensemble.
        """
        if (members is None) == (joining is None and leaving is None):
            raise ValueError("reconfig takes either members, or joining or leaving servers or both")
        if type(version) is not int or not -1 <= version < 2**63:
            raise ValueError(f"version must be -1 (any) or 0 to 2**63-1, not {version!r}")
        lists = [_servers(names) for names in (joining, leaving, members)]
        return self._send(ops.RECONFIG, None, r.ReconfigRequest.pack(*lists, version), _config)


def _servers(names: Sequence[str] | None) -> str | None:
    if names is None:
        return None
    names = names if isinstance(names, str) else list(names)  # it is iterated over twice
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError("servers must be a list of str")
    return ",".join(names)


def _number(record: tuple[int]) -> int:
    return record[0]


def _config(record: tuple[bytes | None, r.Stat]) -> DataAndStat:
    return DataAndStat(record[0] or b"", record[1])
