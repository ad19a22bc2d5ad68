"""The command as a process of its own: ``zkwire`` and ``python -m zkwire``."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - in a checkout nothing else says so
    sys.exit("zkwire needs Python 3.11 or newer")

import gc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def run() -> int:
    """Run the command of the process's words; returns the exit status.

    Most commands end before there is any garbage to collect, and to search for it while modules are
    loaded, and at the end of the process, takes a tenth of such a command's time.
    """
    gc.set_threshold(20_000)
    given: Any = sys.stdin
    if given is not None:
        given.reconfigure(errors="surrogateescape")  # data may be any bytes, as in the words
    output: Any = sys.stdout
    if output is not None:
        output.reconfigure(errors="backslashreplace")  # a name may not fit its encoding
    from zkwire.cli.main import main

    status = main()
    gc.freeze()
    return status


def main() -> None:
    """Run it and exit with its status, which a zipapp does not do with what a function returns."""
    sys.exit(run())


if __name__ == "__main__":
    main()
