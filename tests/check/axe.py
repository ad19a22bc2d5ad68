"""axe-core, which says what of a page a reader without eyes, mouse or a wide screen cannot use.

An npm package of 3 MB, MPL 2.0, for the step `browser` alone: no part of the site.
"""

from __future__ import annotations

from tests.check import npm

VERSION = "4.14.1"
SHA256 = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
SCRIPT = npm.folder_of("axe-core", VERSION) / "axe.min.js"


def provide_axe() -> bool:
    """Have `SCRIPT`; False if it cannot be fetched."""
    return npm.provide("axe-core", VERSION, SHA256, (SCRIPT.name,))
