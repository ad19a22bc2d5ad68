"""README.md on PyPI: no link of it is relative."""

from __future__ import annotations

import pytest

import zkwire
from tests.support import pypi_readme
from tests.unit.test_links import ROOT, targets

BASE = f"https://example.org/zkwire/blob/v{zkwire.__version__}/"


def test_the_readme_on_pypi_has_no_relative_link() -> None:
    readme = (ROOT / "README.md").read_text()
    written = pypi_readme.absolute(readme, "https://example.org/zkwire/")
    assert [target for target in targets(written) if not target.startswith("#")] == []
    assert len(targets(readme)) > 20
    assert f"]({BASE}docs/connection-loss.md#fences-and-leases)" in written
    assert f"]({BASE}docs/session-timeline.svg?raw=true)" in written
    assert pypi_readme.absolute(written, "https://example.org/zkwire/") == written


def test_code_and_headings_stay_as_they_are() -> None:
    text = "`a[0](b)` [here](#how)\n```\n[c](d)\n``` [there](https://example.com)\n"
    assert pypi_readme.absolute(text, "https://example.org") == text


def test_without_an_address_it_says_so_and_writes_nothing() -> None:
    if "urls" in (ROOT / "pyproject.toml").read_text():
        pytest.skip("the project has an address")
    with pytest.raises(SystemExit, match="has no Source in"):
        pypi_readme.main()
