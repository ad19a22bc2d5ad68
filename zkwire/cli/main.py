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
    from collections.abc import Callable

    AddParser = Callable[..., argparse.ArgumentParser]


def main(arguments: list[str] | None = None) -> int:
    """The command's exit status."""
    parser = argparse.ArgumentParser(
        prog="python3 -m zkwire",
        description="zkwire, a ZooKeeper client in pure Python.",
        epilog='"python3 -m zkwire COMMAND --help" shows the options of a command.',
    )
    parser.add_argument("--version", action="version", version=f"zkwire {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    _demo_arguments(commands.add_parser)
    _server_arguments(commands.add_parser)
    _shell_arguments(commands.add_parser)
    for name, count in (("writer", 5), ("holder", 2)):  # processes of the demo
        commands.add_parser(name).add_argument("words", nargs=count)
    asked = parser.parse_args(arguments)
    if asked.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        return _run(asked)
    except BrokenPipeError:  # the reader of the output has ended
        return _failed()
    except (ZooKeeperError, ValueError, OSError) as error:
        print(f"zkwire: {type(error).__name__}: {error}", file=sys.stderr)
        return _failed()
    except KeyboardInterrupt:
        return 130


def _demo_arguments(add_parser: AddParser) -> None:
    demo = add_parser(
        "demo",
        help="show what the locks do when things go wrong",
        description="Shows what the locks do when things go wrong, and checks all that it shows. "
        "Without --server it runs on an in-memory server of its own.",
    )
    demo.add_argument("--server", metavar="HOST:PORT", help="run on this ZooKeeper server")


def _server_arguments(add_parser: AddParser) -> None:
    server = add_parser(
        "server",
        help="run an in-memory ZooKeeper server, for tests and demos",
        description="Runs an in-memory ZooKeeper server until Ctrl-C. It is for tests and demos, "
        "never for production: when it ends, all its data is gone.",
    )
    server.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:2181",
        help="the address to listen at; port 0 is any free port (default: %(default)s)",
    )
    server.add_argument(
        "--certificate", metavar="FILE", help="the server's certificate (PEM); turns TLS on"
    )
    server.add_argument(
        "--key", metavar="FILE", help="the private key, if it is not in the file of the certificate"
    )
    server.add_argument(
        "--client-ca", metavar="FILE", help="the CA certificates for clients' certificates"
    )
    server.add_argument(
        "--client-auth",
        choices=("need", "want"),
        default="need",
        help="with --client-ca: clients need a certificate, or may show one (default: need)",
    )


def _shell_arguments(add_parser: AddParser) -> None:
    shell = add_parser(
        "shell",
        help="look at nodes and change them",
        description="Looks at nodes and changes them. Without COMMAND it reads commands, one from "
        'each line; the command "help" lists them.',
    )
    shell.add_argument(
        "--server",
        metavar="HOST:PORT",
        default="127.0.0.1:2181",
        help="the ZooKeeper server (default: %(default)s)",
    )
    shell.add_argument("--trace", action="store_true", help="show every frame on the wire")
    shell.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="one command to run, such as: get -w /a",
    )


def _failed() -> int:
    """Exit status 1.  Drops output that cannot be written: Python would exit with 120 for it."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _tls(asked: argparse.Namespace) -> ssl.SSLContext | None:
    """The server's TLS context, or None; ValueError if a file cannot be used."""
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
        from zkwire.cli.demo.demo import demo

        return demo(asked.server)
    if asked.command == "server":
        from zkwire.testing.server.server import serve

        return serve(asked.listen, _tls(asked))
    if asked.command == "shell":
        from zkwire.cli.shell import shell

        words = asked.words[1:] if asked.words[:1] == ["--"] else asked.words
        return shell(asked.server, words, trace=asked.trace)
    if asked.command == "writer":
        from zkwire.cli.demo.writers import writer

        return writer(*asked.words)
    from zkwire.cli.demo.scenes import holder

    return holder(*asked.words)
