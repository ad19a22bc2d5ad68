"""Where the page of kazoo's programs is."""

from __future__ import annotations

from tests.interop.pages import DOCUMENTS

PAGE = DOCUMENTS / "how-to" / "kazoo-programs.md"
