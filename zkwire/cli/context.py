"""What a command works with: the client, where it writes, and where relative paths begin.

The client connects when it is first asked for; a command that needs no server has none.
"""

from __future__ import annotations

import os
import posixpath
import sys
from argparse import Namespace
from functools import cached_property
from typing import Any, TextIO

import zkwire
from zkwire.cli.command import server_of
from zkwire.cli.output import Output, one_line, tell
from zkwire.errors import UnreachableError


class Context:
    """One run of the command, or of the shell.

    ``options``: those that :mod:`zkwire.cli.command` lists, parsed.  ``server`` is where
    clients connect, ``auth`` the credentials that the shell's user has added.
    """

    def __init__(self, options: Namespace) -> None:
        self.options = options
        self.server: str = server_of(options)
        self.auth: list[tuple[str, bytes]] = []
        self.output: Output = Output(json=options.json, quiet=options.quiet, colour=options.color)
        self.directory = "/"
        self.in_shell = False

    @cached_property
    def client(self) -> zkwire.Client:
        """The client, connected; UnreachableError after ``--connect-timeout``."""
        return self.connect(self.server)

    def connect(self, server: str) -> zkwire.Client:
        """A client of another server, with the same options; the caller closes it."""
        client = self.unconnected(server)
        try:
            client.connect(self.options.connect_timeout)
        except BaseException:
            client.close()
            raise
        return client

    def unconnected(self, server: str, **more: Any) -> zkwire.Client:
        """A client that has not begun to connect, with the same options and ``more`` of them."""
        return zkwire.Client(server, **self._client_options() | more)

    def supervisor(self) -> zkwire.Supervisor:
        """One session after another, with the same options, for what outlives a session."""
        return zkwire.Supervisor(self.server, **self._client_options())

    @staticmethod
    def await_session(supervisor: zkwire.Supervisor, seconds: float) -> None:
        """Wait for the first session; UnreachableError says what each server has said."""
        try:
            supervisor.client(seconds)
        except UnreachableError:
            newest = supervisor._algorithm._newest
            if newest._session.failures:
                raise newest._unreachable(seconds) from None
            raise

    def _client_options(self) -> dict[str, Any]:
        from zkwire.net.listeners import be_silent_without_logging

        be_silent_without_logging()
        options = self.options
        limit = options.send_limit
        return {
            **({"send_limit": limit} if limit is not None else {}),
            "session_timeout": options.session_timeout,
            "auth": [*_credentials(options.auth), *self.auth],
            "tls": self.tls,
            "read_only": options.read_only,
            "lease_margin": getattr(options, "lease_margin", 0.0),  # an option of lock alone
            "trace": _show_frame if options.trace else None,
        }

    @cached_property
    def tls(self) -> Any:
        """What ``--tls``, ``--cafile`` and ``--cert`` ask for; None without them."""
        options = self.options
        if options.key and not options.cert:
            raise ValueError("--key is the key of a --cert")
        if not (options.tls or options.cafile or options.cert):
            return None
        import ssl

        try:
            context = ssl.create_default_context(cafile=options.cafile)
            if options.cert:
                context.load_cert_chain(options.cert, options.key)
        except OSError as error:
            raise unusable(error, options.cafile, options.cert, options.key) from None
        return context

    def path(self, text: str) -> str:
        """An absolute path, without a ``/`` at its end; a relative one begins at the directory."""
        return posixpath.normpath(posixpath.join(self.directory, text)).replace("//", "/")

    def close(self) -> None:
        """End the session, if there is one."""
        if "client" in self.__dict__:
            self.__dict__.pop("client").close()


def standard_input() -> TextIO:
    """Standard input; OSError if the process was started without it."""
    if sys.stdin is None:
        raise OSError("standard input is closed")
    return sys.stdin


def _credentials(asked: str | None) -> list[tuple[str, bytes]]:
    """From ``SCHEME:FILE``, the words of ``--auth``, or ``SCHEME:SECRET`` of the environment."""
    if not asked:
        return []
    scheme, colon, rest = asked.partition(":")
    if not colon:
        raise ValueError("--auth takes SCHEME:FILE, such as digest:secret.txt")
    if asked == os.environ.get("ZKWIRE_AUTH"):
        return [(scheme, os.fsencode(rest))]  # its bytes, which may be no UTF-8
    try:
        with open(rest, "rb") as file:
            return [(scheme, file.read().rstrip(b"\r\n"))]
    except OSError as error:  # without the name, which may be a secret that was typed there
        words = f"the FILE of --auth SCHEME:FILE cannot be read: {error.strerror}"
        raise OSError(words) from None


def unusable(error: OSError, *files: str | None) -> OSError:
    """What to raise for an error of TLS files: neither OSError nor ssl.SSLError names the file."""
    return OSError(f"cannot use {', '.join(filter(None, files))}: {error.strerror or error}")


def _show_frame(frame: zkwire.TraceFrame) -> None:
    """Write a line for a frame on the wire to standard error."""
    xid = "" if frame.op == "connect" else f"xid {frame.xid}"  # a connect has no header
    zxid = f"zxid {frame.zxid:#x}" if frame.zxid is not None and frame.zxid > 0 else ""
    error = f"error {frame.error}" if frame.error else ""
    words = ["->" if frame.sent else "<-", frame.op, xid, frame.path or "", zxid, error]
    tell(one_line(" ".join([*filter(None, words), f"({frame.size} bytes)"])) + "\n")
