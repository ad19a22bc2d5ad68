"""What both clients have in common: options checked, a session made of them, and what one may ask.

All of it is glue between Operations, Session and a pump; which pump is the subclass's business.
"""

from __future__ import annotations

import itertools

from zkwire.errors import UnreachableError
from zkwire.jute.frames import RECEIVE_LIMIT
from zkwire.net.held import Made, warn_unclosed
from zkwire.net.options import (
    check_auth,
    check_callable,
    check_lease_margin,
    check_receive_limit,
    check_resume,
    check_sasl,
    check_session_timeout,
    check_tls,
)
from zkwire.operations.checks import check_acl
from zkwire.session.hosts import HostList, parse_hosts
from zkwire.session.session import Session
from zkwire.session.states import Listener
from zkwire.session.waitable import check_timeout
from zkwire.wire.model import OPEN_ACL_UNSAFE, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta
    from random import Random
    from ssl import SSLContext
    from typing import Any, Never

    from zkwire.jute.records import ACL
    from zkwire.net.dial import Resolver
    from zkwire.net.sasl import Mechanism
    from zkwire.session.trace import TraceFrame
    from zkwire.wire.model import Credentials

CLOSE_SECONDS = 1.0
_numbers = itertools.count(1)


class ClientBase:
    """See the module's docstring."""

    _pump: Any  # ThreadDriver or LoopDriver, as the subclass says
    _world: Any  # a Runtime, with it

    def __init__(
        self,
        hosts: str,
        *options_have_names: Never,
        session_timeout: float | timedelta = 10.0,
        operation_timeout: float | None = None,
        auth: Sequence[tuple[str, bytes]] = (),
        default_acl: Sequence[ACL] = OPEN_ACL_UNSAFE,
        sasl: Mechanism | None = None,
        tls: SSLContext | None = None,
        read_only: bool = False,
        resume: Credentials | None = None,
        follow_reconfig: bool = False,
        receive_limit: int = RECEIVE_LIMIT,
        lease_margin: float = 0.0,
        trace: Callable[[TraceFrame], object] | None = None,
        _resolver: Resolver | None = None,
        _now: Callable[[], float] | None = None,
        _seed: int | None = None,
    ) -> None:
        # Here and not at the top: an import of zkwire must not cost an import of socket.
        from random import Random, SystemRandom

        from zkwire.net import observe
        from zkwire.net.server_list import ServerListUpdates

        if options_have_names:
            raise TypeError(
                f"the port belongs into hosts, as in 'host:2181', and other options have names: "
                f"{options_have_names[0]!r} has none"
            )
        timeout = check_session_timeout(session_timeout)
        servers, chroot = parse_hosts(hosts)
        if trace is not None:
            check_callable("trace", trace)
        rng = SystemRandom() if _seed is None else Random(_seed)
        self._hosts = hosts
        self._made = Made()
        self._operation_timeout = check_timeout("operation_timeout", operation_timeout)
        self._acl: Sequence[ACL] = check_acl(default_acl, "default_acl")
        session = Session(
            HostList(servers, rng),
            timeout=timeout,
            chroot=chroot,
            receive_limit=check_receive_limit(receive_limit),
            sasl=check_sasl(sasl) is not None,
            read_only=bool(read_only),
            resume=check_resume(resume),
            lease_margin=check_lease_margin(lease_margin, timeout),
        )
        for scheme, secret in check_auth(auth):
            session.add_auth(scheme, secret)
        self._session = session
        name = f"zkwire-{next(_numbers)}"
        self._make_shell(name, check_tls(tls), sasl, rng, _resolver, _now)
        self._world.operation_timeout = self._operation_timeout
        self._pump.client = self  # so that a lock or a watch keeps it alive
        observe.attach(session, name, trace, self._pump.dispatch)
        if follow_reconfig:
            session.observers.add(ServerListUpdates(self._pump, self._world.background, servers))

    def _make_shell(
        self,
        name: str,
        tls: SSLContext | None,
        sasl: Mechanism | None,
        rng: Random,
        resolver: Resolver | None,
        now: Callable[[], float] | None,
    ) -> None:
        """Make ``_pump`` and ``_world``."""
        raise NotImplementedError

    def __del__(self) -> None:
        pump = getattr(self, "_pump", None)  # there is none behind a refused option
        if pump is not None and pump.drop(CLOSE_SECONDS):
            warn_unclosed(self, self._made)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._hosts} {self.state.value}>"

    @property
    def state(self) -> State:
        """Where the client stands at this moment; CLOSED in a forked child."""
        return State.CLOSED if self._pump.forked else self._session.state

    def add_state_listener(self, listener: Callable[[State], object]) -> None:
        """Call ``listener`` with every new state from now on, in order, in the callback thread.

        It may block and may use the client.  DISCONNECTED: connecting again, nothing is lost yet;
        while no server can be reached CONNECTING and DISCONNECTED take turns, a pair an attempt.
        CONNECTED again: the same session, watches and authentication are back.  EXPIRED,
        AUTH_FAILED and CLOSED are the last.
        """
        check_callable("listener", listener)
        self._pump.attach(Listener(listener, self._pump.dispatch))

    def remove_state_listener(self, listener: Callable[[State], object]) -> None:
        """The opposite.  Idempotent."""
        self._pump.detach(Listener(listener, self._pump.dispatch))

    @property
    def credentials(self) -> Credentials:
        """The session's id and password, for ``Client(resume=...)``; its repr hides the password.

        Raises what ended the session, and RuntimeError when there is none yet.
        """
        if self._session.ended:
            raise self._session.ending()
        if self._session.session_id == 0:
            raise RuntimeError("there is no session yet: connect first")
        return self._session.credentials

    @property
    def session_id(self) -> int:
        """The session's id, a signed 64-bit number; 0 before the first connection."""
        return self._session.session_id

    @property
    def session_timeout(self) -> float:
        """Seconds: what the server granted, before the first connection what was asked for."""
        return self._session.timeout

    def lease_remaining(self) -> float:
        """Seconds for which the session is surely alive, even if no further answer comes.

        Counted from the sending of the last request that was answered; 0.0 when the session may
        have expired, or has.  Sure as long as the server that answered is in touch with its leader
        and, without a ``lease_margin``, does not crash right behind an answer; see
        :mod:`zkwire.session.liveness`.
        """
        return max(0.0, self._world.lease_deadline - self._world.now())

    def _credentials_to_leave(self) -> Credentials:
        """The credentials, if nothing is held that would live on without an owner."""
        credentials = self.credentials
        self._world.check()
        for lock in tuple(self._world.engaged):
            lock._resume_cleanup()
        if self._session.lease_holders or any(lock._engaged for lock in tuple(self._world.engaged)):
            raise RuntimeError(
                "a lock is held, or somebody is acquiring it, or it was lost and not released: end "
                "that first, its node would block everybody"
            )
        return credentials

    def _unreachable(self, seconds: float) -> UnreachableError:
        """The error for no connection in that time."""
        known = self._session.failures.copy()  # the I/O thread may note down another
        failures = [f"{server}: {why}" for server, why in known.items()]
        return UnreachableError(
            f"no server could be reached within {seconds:.1f} s "
            f"({'; '.join(failures) or 'none has answered yet'})"
        )

    def _deadline(self) -> float | None:
        limit = self._operation_timeout
        return None if limit is None else self._world.now() + limit
