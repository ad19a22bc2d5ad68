"""All situations, in the order of the page."""

from __future__ import annotations

from tests.interop.atlas import changes

SITUATIONS = (*changes.SITUATIONS,)
