"""Run every operation and recipe on each release; compare docs/operations.md, or write it again.

The releases are Debian's and those of `ZOOKEEPER_HOME`; columns of others stay as they are.
"""

from __future__ import annotations

import sys

from tests.interop.matrix.table import main

sys.exit(main())
