"""What may be wrong with a server that cannot be used, found by asking it in other ways."""

from __future__ import annotations

import time

from zkwire.cli.servers.words import NOT_ALLOWED, NOT_SERVING, ask, dialled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.cli.servers.target import Target

NO_QUORUM = (
    "perhaps it has no quorum: start enough of the others, and see whether they reach one another "
    "at their ports 2888 and 3888 (or as its configuration says)"
)
HTTP = (
    "HTTP is spoken there: is it the port of the admin server? clients use clientPort, often 2181"
)
NO_TLS = "that port speaks without TLS: leave --tls out, or ask for the port secureClientPort"
WANTS_TLS = "that port speaks TLS: try --tls (--cafile FILE for an authority of your own)"
OTHER = "what answers is no ZooKeeper server; clients use clientPort, often 2181"
CLOCK = "compare the dates of the certificate with the clock of this machine"
NAME = "name the server in --server as its certificate does"
TRUST = "--cafile FILE names the authority that has signed the certificate"
CERTIFICATE = "--cert FILE and --key FILE show a certificate of yours"
REFUSED = "does the server run, and is that its clientPort, often 2181?"
SILENT = "perhaps a firewall, a wrong address, or a machine that is down"
MUTE = "it accepts connections and says nothing: does the process hang, is it no ZooKeeper server?"
RESOLVE = "does the name exist, and which resolver does this machine ask?"
CHROOT = "a --server without the chroot can create it: zkwire --server HOST create -p {}"
SECONDS = 2.0  # for each question, also when the time limit has passed

# What a problem says, and what may help.
WORDS = {
    "resolve the name": RESOLVE,
    "refused": REFUSED,
    "no answer to the greeting": MUTE,
    "is not for host": NAME,
    "not yet valid": CLOCK,
    "has expired": CLOCK,
    "is not trusted": TRUST,
    "client certificate": CERTIFICATE,
    "lost its ensemble": NO_QUORUM,
}


def for_failure(target: Target, problem: str, *, connected: bool) -> list[str]:
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


def _asked(target: Target) -> str | None:
    plain = target.context.tls is None
    if plain and _speaks_tls(target):  # which would wait for more than the four letters
        return WANTS_TLS
    try:
        text = ask("srvr", target.address, time.monotonic() + SECONDS)
    except OSError:
        text = ""
    if text.startswith("Zookeeper version"):
        return None if plain else NO_TLS
    if NOT_SERVING in text:
        return NO_QUORUM
    if text.startswith("HTTP/"):
        return HTTP
    return OTHER if text and NOT_ALLOWED not in text else None


def _speaks_tls(target: Target) -> bool:
    """Whether the server answers a TLS handshake, whatever its certificate is."""
    import ssl

    anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anything.check_hostname = False
    anything.verify_mode = ssl.CERT_NONE
    try:
        dialled(target.address, time.monotonic() + SECONDS, anything, target.server[0]).close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True
