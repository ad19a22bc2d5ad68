"""What one asks of the ensemble and the session instead of a node."""

from __future__ import annotations

from zkwire.jute import records as r
from zkwire.operations.base import Requests
from zkwire.operations.checks import check_text
from zkwire.wire import ops
from zkwire.wire.model import DataAndStat
from zkwire.wire.paths import CONFIG_NODE, strip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.operations.base import AnyWatch, Reply


class Admin(Requests):
    """The operations on ensemble and session."""

    def add_auth(self, scheme: str, secret: bytes) -> Reply[None]:
        """Authenticate, on this connection and on every later one.

        ``("digest", b"user:password")`` is :func:`zkwire.digest_auth`.  Requests behind it have its
        rights.  A server accepts every digest: a wrong password shows as NoAuthError later.

        A scheme that the server does not know ends the session (AuthFailedError).  If the
        connection is lost: nothing is left to do, the call waits for the next connection, a session
        timeout at most (NotSentError); the credentials stay.
        """
        if not isinstance(secret, bytes):
            raise TypeError(f"secret must be bytes, not {type(secret).__name__}")
        body = r.AuthPacket.pack(0, check_text("scheme", scheme), secret)
        return self._send(ops.AUTH, None, body)

    def who_am_i(self) -> Reply[list[r.ClientInfo]]:
        """Whom the server takes this connection for, as scheme and user (since 3.7).

        If the connection is lost: ask again.
        """
        return self._send(ops.WHO_AM_I, None, b"", _identities)

    def get_ephemerals(self, prefix: str = "/") -> Reply[list[str]]:
        """The paths of this session's ephemeral nodes that begin with ``prefix`` (since 3.6).

        It is a prefix of text: "/a" finds "/ab" as well.  If the connection is lost: ask again.
        """
        if not check_text("prefix", prefix).startswith("/"):
            raise ValueError(f"prefix must start with '/': {prefix!r}")
        body = r.GetEphemeralsRequest.pack(self._chroot + prefix)
        return self._send(ops.GET_EPHEMERALS, prefix, body, self._ephemerals)

    def _ephemerals(self, record: r.GetEphemeralsResponse) -> list[str]:
        return [strip(self._chroot, path) for path in record.ephemerals]

    def get_all_children_number(self, path: str) -> Reply[int]:
        """How many nodes there are below ``path``, at any depth (since 3.6).

        Refused with: NoNodeError; NoAuthError.  If the connection is lost: ask again.
        """
        return self._call(ops.GET_ALL_CHILDREN_NUMBER, path, (), _number)

    def get_config(self, *, watch: AnyWatch | None = None) -> Reply[DataAndStat]:
        """The ensemble's configuration, in text, and the stat of its node (since 3.5).

        It stands outside of every chroot.  A server on its own has an empty one.  If the connection
        is lost: read again; the watch of the lost call was not set.
        """
        body = r.GetDataRequest.pack(CONFIG_NODE, watch is not None)
        if watch is None:
            return self._send(ops.GET_DATA, CONFIG_NODE, body, _config)
        kind = ops.GET_DATA.watch
        assert kind is not None
        return self._send_watching(
            ops.GET_DATA, CONFIG_NODE, body, _config, watch, CONFIG_NODE, kind
        )

    def reconfig(
        self,
        *,
        joining: Sequence[str] | None = None,
        leaving: Sequence[str] | None = None,
        members: Sequence[str] | None = None,
        version: int = -1,
    ) -> Reply[DataAndStat]:
        """Change the ensemble; returns its new configuration and the stat of its node (since 3.5).

        Either ``joining`` (``"server.4=host:2888:3888;2181"``) and ``leaving`` (``"3"``), or all
        ``members``.  ``version``: the configuration that this is a change of, -1 for any.

        Refused with: ReconfigDisabledError; NoAuthError; BadVersionError; BadArgumentsError;
        NewConfigNoQuorumError and ReconfigInProgressError (try again later); UnimplementedError (a
        server on its own).  If the connection is lost (OutcomeUnknownError): read the configuration
        and compare.
        """
        if (members is None) == (joining is None and leaving is None):
            raise ValueError("reconfig takes either members, or joining and leaving servers")
        if type(version) is not int or not -1 <= version < 2**63:
            raise ValueError(f"version must be -1 (any) or 0 to 2**63-1, not {version!r}")
        lists = [_servers(names) for names in (joining, leaving, members)]
        return self._send(ops.RECONFIG, None, r.ReconfigRequest.pack(*lists, version), _config)


def _servers(names: Sequence[str] | None) -> str | None:
    if names is None:
        return None
    names = names if isinstance(names, str) else list(names)  # it is gone through twice
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError("servers must be a list of str")
    return ",".join(names)


def _identities(record: r.WhoAmIResponse) -> list[r.ClientInfo]:
    return list(record.client_info)


def _number(record: r.GetAllChildrenNumberResponse) -> int:
    return record.total_number


def _config(record: r.GetDataResponse) -> DataAndStat:
    return DataAndStat(record.data or b"", record.stat)
