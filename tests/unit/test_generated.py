"""What follows from the recipes and operations is up to date."""

from tools import generate


def test_what_is_generated_is_up_to_date() -> None:
    stale = [str(path) for path, text in generate.everything().items() if path.read_text() != text]
    assert stale == [], "run python3 tools/generate.py"
