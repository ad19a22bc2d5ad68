"""``zkwire doctor``: asks every address of every server, and says what is wrong."""

from __future__ import annotations

import textwrap
import time
from argparse import Namespace
from functools import partial
from typing import Any

import zkwire
from zkwire.cli.command import Command
from zkwire.cli.context import Context
from zkwire.cli.output import REFUSED, Output, host_port, in_flags
from zkwire.cli.servers import asking
from zkwire.errors import ServerError, ZooKeeperError
from zkwire.session import hosts as known
from zkwire.session.hosts import parse_hosts
from zkwire.wire.model import State

WIDTH = 80
CLOSING = 5.0  # seconds beyond the limit, for the last questions and for the session's end


def _doctor(context: Context, _: Namespace) -> int | None:
    """
    zkwire doctor --server zk1,zk2,zk3      # what each address says
    zkwire doctor --json | jq .problem      # an object for each address

    Each address is connected to, asked for `srvr`, and has a session for a moment.
    The status is 0 if each server can be used, else 1.  --connect-timeout is the
    time limit for each; they are asked at the same time.
    """
    hosts, out = context.server, context.output
    servers, chroot = parse_hosts(hosts)
    context.unconnected(hosts).close()  # a wrong option is to be found before anything is asked
    checkups = _examined(context, servers, chroot)
    # A client tries the next address of a name, so one that works will do.
    usable = {checkup.name for checkup in checkups if checkup.problem is None}
    names = {host_port(*server) for server in servers}
    if out.json:
        for checkup in checkups:
            out.record(checkup.fields())
    else:
        _show(out, checkups)
        out.line(f"{len(usable)} of {len(names)} servers can be used")
    return None if usable == names else REFUSED


def _examined(context: Context, servers: list[tuple[str, int]], chroot: str) -> list[Checkup]:
    """A checkup for each address, in the order of the servers; all at the same time."""
    until = time.monotonic() + context.options.connect_timeout
    checkups: list[Checkup] = []
    works: list[partial[Checkup]] = []
    for server, found in asking.resolved(servers, until):
        if isinstance(found, str):
            checkups.append(Checkup(host_port(*server), None, found))
            checkups[-1].hints = for_words(found)
            continue
        for address in found:
            target = asking.Target(server, chroot, address, context)
            late = Checkup(target.name, target.where, "no answer in time")
            checkups.append(late)
            works.append(partial(examine, target, until))
    done = iter(asking.all_at_once(works, until + CLOSING))
    return [checkup if checkup.where is None else next(done) or checkup for checkup in checkups]


def _show(out: Output, checkups: list[Checkup]) -> None:
    """Each address, what is known of it and its problem; at the end the hints, each once."""
    for checkup in checkups:
        also = "" if checkup.where in (None, checkup.name) else f" ({checkup.where})"
        out.line(f"{checkup.name}{also}")
        _paragraph(out, ", ".join(checkup.facts()), "    ")
        _paragraph(out, checkup.problem or "", "    ")
    for hint in dict.fromkeys(hint for checkup in checkups for hint in checkup.hints):
        _paragraph(out, f"hint: {hint}", "")


def _paragraph(out: Output, text: str, indent: str) -> None:
    wrapped = textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent or "  ", break_on_hyphens=False
    )
    for line in wrapped:
        out.line(line)


# --- checkup --------------------------------------------------------------------------------------
# Whether one address of a server can be used: it connects, and has a session for a moment.
#
# Nothing is changed but for that session.  All of it is over when the time limit is.

PINGS = 3


class Checkup:
    """What is known of one address; ``problem`` says in words why it cannot be used.

    ``where``: the address and the port, None for a name that has no address.  ``connect``, ``ping``
    and ``session_timeout`` are seconds.
    """

    def __init__(self, name: str, where: str | None, problem: str | None = None) -> None:
        self.name, self.where, self.problem = name, where, problem
        self.hints: list[str] = []
        self.mode: str | None = None
        self.version: str | None = None
        self.nodes: int | None = None
        self.latency: str | None = None
        self.connect: float | None = None
        self.ping: float | None = None
        self.session_timeout: float | None = None

    def facts(self) -> list[str]:
        """What is shown to people."""
        ping = f"ping {self.ping * 1000:.1f} ms" if self.ping else None
        session = f"session {self.session_timeout:g} s" if self.session_timeout else None
        nodes = None if self.nodes is None else f"{self.nodes:,} nodes"
        return [fact for fact in (self.mode, self.version, ping, session, nodes) if fact]

    def fields(self) -> dict[str, Any]:
        """What ``--json`` shows."""
        usable = self.problem is None
        found: dict[str, Any] = {"server": self.name, "address": self.where, "usable": usable}
        times = {"connect_ms": self.connect, "ping_ms": self.ping}
        found |= {name: seconds and round(seconds * 1000, 2) for name, seconds in times.items()}
        names = ("mode", "version", "session_timeout", "nodes", "latency", "problem", "hints")
        return found | {name: getattr(self, name) for name in names}


def examine(target: asking.Target, until: float) -> Checkup:
    """Connect, ask, and have a session, until then at the latest."""
    checkup = Checkup(target.name, target.where)
    begin = time.monotonic()
    try:
        asking.dialled(target.address, until).close()
    except OSError as error:
        checkup.problem = (
            "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        )
        checkup.hints = for_failure(target, checkup.problem, connected=False)
        return checkup
    checkup.connect = time.monotonic() - begin
    _ask_srvr(target, checkup, until)
    _have_session(target, checkup, until)
    if checkup.problem is not None:
        checkup.hints += for_failure(target, checkup.problem, connected=True)
    return checkup


def _ask_srvr(target: asking.Target, checkup: Checkup, until: float) -> None:
    """Take what ``srvr`` tells, if it is allowed; the session is to have most of the time.

    A port for TLS waits for more than four letters.
    """
    now = time.monotonic()
    limit = now + min(SECONDS, (until - now) / 2)
    try:
        text = asking.ask("srvr", target.address, limit, target.context.tls, target.server[0])
    except OSError:
        return
    if asking.NOT_ALLOWED in text:
        return
    told = asking.Srvr(text)
    checkup.mode, checkup.version = told.mode, told.version
    checkup.nodes, checkup.latency = told.nodes, told.latency
    if not told.serving:
        checkup.mode = "no quorum"


def _have_session(target: asking.Target, checkup: Checkup, until: float) -> None:
    """One attempt: the client's second one would tell nothing new."""

    def resolver(_host: str, _port: int) -> list[known.Address]:
        return [target.address]

    client = target.context.unconnected(
        target.name + target.chroot, read_only=True, _resolver=resolver
    )
    try:
        left = max(until - time.monotonic(), 0.0)
        states = (State.CONNECTED, State.CONNECTED_READ_ONLY, State.DISCONNECTED)
        state = client.wait_for_state(*states, timeout=left)
        if state is None or not state.usable:
            why = list(client._session.failures.values())
            refused = "the server rejected the credentials"
            words = in_flags("".join(why[-1:]))
            checkup.problem = refused if state is State.AUTH_FAILED else words
            checkup.problem = checkup.problem or "no answer to the greeting"
            return
        checkup.session_timeout = client.session_timeout
        _use(target, client, checkup, until)
        if state is State.CONNECTED_READ_ONLY:
            checkup.mode = "read-only"
            if not target.context.options.read_only:
                checkup.problem = "it is read-only: it has lost its ensemble"
    finally:
        client.close()


def _use(target: asking.Target, client: zkwire.Client, checkup: Checkup, until: float) -> None:
    """Time some requests; the first one also tells whether the chroot is there."""
    try:
        for _ in range(PINGS):
            begin = time.monotonic()
            try:
                stat = client.pipeline.exists("/").result(max(until - begin, 0.001))
                if stat is None:
                    checkup.problem = f"the chroot {target.chroot} does not exist"
            except ServerError:
                pass  # it may not be read; the server has answered
            took = time.monotonic() - begin
            checkup.ping = min(took, checkup.ping or took)
    except ZooKeeperError as error:
        checkup.problem = in_flags(str(error))


# --- hints ----------------------------------------------------------------------------------------
# What may be wrong with a server that cannot be used, found by asking it in other ways.

NO_QUORUM = (
    "perhaps it has no quorum: start enough of the others, and see whether they reach one another "
    "at their ports 2888 and 3888 (or as its configuration says)"
)
HTTP = "that port speaks HTTP: is it the port of the admin server? clients use clientPort"
NO_TLS = "that port does not speak TLS: leave --tls out, or ask for the port secureClientPort"
WANTS_TLS = "that port speaks TLS: try --tls (--cafile FILE for an authority of your own)"
OTHER = "what answers is not a ZooKeeper server; clients use clientPort, often 2181"
CLOCK = "compare the dates of the certificate with the clock of this machine"
SILENT = "perhaps a firewall, a wrong address, or a machine that is down"
CHROOT = "create it through a --server without the chroot: zkwire --server HOST create -p {}"
SECONDS = 2.0  # for each question, also when the time limit has passed

# What a problem says, and what may help.
WORDS = {
    "resolve the name": "does the name exist, and which resolver does this machine ask?",
    "refused": "does the server run, and is that its clientPort, often 2181?",
    "no answer to the greeting": "it accepts connections and says nothing: does it hang, or "
    "is it not a ZooKeeper server?",
    "is not for host": "name the server in --server as its certificate does",
    "not yet valid": CLOCK,
    "has expired": CLOCK,
    "is not trusted": "--cafile FILE names the authority that has signed the certificate",
    "client certificate": "--cert FILE and --key FILE show a certificate of yours",
    "lost its ensemble": NO_QUORUM,
}


def for_failure(target: asking.Target, problem: str, *, connected: bool) -> list[str]:
    """Hints for a problem; with a connection the server is asked once more, in other ways."""
    if problem.startswith("the chroot "):
        return [CHROOT.format(target.chroot)]
    if not connected and problem == "no answer":
        return [SILENT]
    found = for_words(problem)
    if found or not connected:
        return found
    return [hint] if (hint := _asked(target)) else []


def for_words(problem: str) -> list[str]:
    """Hints that need no server."""
    return [hint for words, hint in WORDS.items() if words in problem]


def _asked(target: asking.Target) -> str | None:
    plain = target.context.tls is None
    if plain and _speaks_tls(target):  # which would wait for more than the four letters
        return WANTS_TLS
    try:
        text = asking.ask("srvr", target.address, time.monotonic() + SECONDS)
    except OSError:
        text = ""
    if text.startswith("Zookeeper version"):
        return None if plain else NO_TLS
    if asking.NOT_SERVING in text:
        return NO_QUORUM
    if text.startswith("HTTP/"):
        return HTTP
    return OTHER if text and asking.NOT_ALLOWED not in text else None


def _speaks_tls(target: asking.Target) -> bool:
    """Whether the server answers a TLS handshake, whatever its certificate is."""
    import ssl

    anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anything.check_hostname = False
    anything.verify_mode = ssl.CERT_NONE
    try:
        asking.dialled(
            target.address, time.monotonic() + SECONDS, anything, target.server[0]
        ).close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True


COMMANDS = {"doctor": Command(_doctor)}
