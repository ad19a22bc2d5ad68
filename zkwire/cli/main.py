"""The arguments of the ``zkwire`` command, and which function they call."""

from __future__ import annotations

import argparse
import os
import sys

from zkwire import __version__
from zkwire.errors import ZooKeeperError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl


def main(arguments: list[str] | None = None) -> int:
    """The command's exit status."""
    parser = argparse.ArgumentParser(
        prog="python3 -m zkwire", description="A ZooKeeper client in pure Python."
    )
    parser.add_argument("--version", action="version", version=f"zkwire {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    demo = commands.add_parser("demo", help="show what the locks do when things go wrong")
    demo.add_argument("--server", metavar="HOST:PORT", help="on this ZooKeeper, not an own one")
    server = commands.add_parser("server", help="run the in-memory server, for tests and demos")
    server.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:2181")
    server.add_argument("--certificate", metavar="FILE", help="speak TLS; a PEM file")
    server.add_argument("--key", metavar="FILE", help="its key, if it is in a file of its own")
    server.add_argument("--client-ca", metavar="FILE", help="who signs certificates of clients")
    server.add_argument(
        "--client-auth",
        choices=("need", "want"),
        default="need",
        help="whether clients must show one (want: they may)",
    )
    shell = commands.add_parser("shell", help="look at nodes and change them by hand")
    shell.add_argument("--server", metavar="HOST:PORT", default="127.0.0.1:2181")
    shell.add_argument("--trace", action="store_true", help="show every frame on the wire")
    shell.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="one command, such as: get -w /a (none: as many as you type)",
    )
    for name, count in (("writer", 5), ("holder", 2)):  # processes of the demo
        commands.add_parser(name).add_argument("words", nargs=count)
    asked = parser.parse_args(arguments)
    if asked.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        return _run(asked)
    except BrokenPipeError:  # whoever reads has had enough
        return _failed()
    except (ZooKeeperError, ValueError, OSError) as error:
        print(f"zkwire: {type(error).__name__}: {error}", file=sys.stderr)
        return _failed()
    except KeyboardInterrupt:
        return 130


def _failed() -> int:
    """1; without what cannot be written, which Python would try again at its end, and say 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _tls(asked: argparse.Namespace) -> ssl.SSLContext | None:
    """What the server is to make connections with; ValueError if a file cannot be used."""
    files = [file for file in (asked.certificate, asked.key, asked.client_ca) if file]
    if not files:
        return None
    if asked.certificate is None:
        raise ValueError("--key and --client-ca need --certificate")
    from zkwire.testing.server.tls import make_context

    optional = asked.client_auth == "want"
    try:
        return make_context(asked.certificate, asked.key, asked.client_ca, optional=optional)
    except OSError as error:  # ssl.SSLError is one; neither names the file
        reason = error.strerror or str(error)
        raise ValueError(f"cannot use {', '.join(files)}: {reason}") from None


def _run(asked: argparse.Namespace) -> int:
    if asked.command == "demo":
        from zkwire.cli.demo import demo

        return demo(asked.server)
    if asked.command == "server":
        from zkwire.testing.server.server import serve

        return serve(asked.listen, _tls(asked))
    if asked.command == "shell":
        from zkwire.cli.shell import shell

        words = asked.words[1:] if asked.words[:1] == ["--"] else asked.words
        return shell(asked.server, words, trace=asked.trace)
    if asked.command == "writer":
        from zkwire.cli.writers import writer

        return writer(*asked.words)
    from zkwire.cli.scenes import holder

    return holder(*asked.words)
