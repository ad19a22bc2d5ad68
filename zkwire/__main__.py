"""The command, by ``python -m zkwire``."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - in a checkout nothing else says so
    sys.exit("zkwire needs Python 3.11 or newer")

from zkwire.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
