"""``python -m zkwire``."""

import sys

from zkwire.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
