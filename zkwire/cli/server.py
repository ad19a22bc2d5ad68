"""``zkwire server``: an in-memory server for tests and demos."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from zkwire.cli.command import Command, arg
from zkwire.cli.context import Context, unusable


def _server(_: Context, asked: Namespace) -> int:
    """
    zkwire server                        # at 127.0.0.1:2181
    zkwire server --listen 127.0.0.1:0   # at any free port, which it prints

    It runs until Ctrl-C, and is for tests and demos, never for production: when it
    ends, all its data is gone.
    """
    from zkwire.testing.server.server import serve

    return serve(asked.listen, _tls(asked))


def _tls(asked: Namespace) -> Any:
    """The server's TLS context, or None; OSError if a file cannot be used."""
    files = [file for file in (asked.certificate, asked.key, asked.client_ca) if file]
    if not files:
        return None
    if asked.certificate is None:
        raise ValueError("--key and --client-ca need --certificate")
    from zkwire.testing.server.tls import make_context

    optional = asked.client_auth == "want"
    try:
        return make_context(asked.certificate, asked.key, asked.client_ca, optional=optional)
    except OSError as error:
        raise unusable(error, *files) from None


# fmt: off
ARGUMENTS = (
    arg("--listen", metavar="HOST:PORT", default="127.0.0.1:2181",
        help="the address to listen on; port 0 is any free port (default: %(default)s)"),
    arg("--certificate", metavar="FILE", help="the server's certificate (PEM); turns TLS on"),
    arg("--key", metavar="FILE",
        help="the private key, if it is not in the file of the certificate"),
    arg("--client-ca", metavar="FILE", help="the CA certificates for clients' certificates"),
    arg("--client-auth", choices=("need", "want"), default="need",
        help="with --client-ca: clients need a certificate, or may show one (default: need)"),
)
COMMANDS = {"server": Command(_server, *ARGUMENTS, in_shell=False, connects=False)}
