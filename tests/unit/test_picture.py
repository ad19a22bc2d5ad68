"""The renderer of pictures: bands beside each other, words that nothing crosses."""

import re
from xml.etree import ElementTree

import pytest

from tests.support import lesson_page
from zkwire.cli.picture import BAND, PER_CHARACTER, TOP, Band, Picture, Step, svg

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*steps: Step, bands: tuple[Band, ...] = (), scale: float = 0.0) -> ElementTree.Element:
    picture = Picture("t", "d", ("A", "B", "server"), steps, bands=bands, scale=scale)
    assert svg(picture) == svg(picture)
    return ElementTree.fromstring(svg(picture))


def boxes(root: ElementTree.Element, kind: str) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of each rectangle of this class."""
    found = [e for e in root.iter(f"{SVG}rect") if e.get("class") == kind]
    sides = [[float(e.get(name, 0)) for name in ("x", "y", "width", "height")] for e in found]
    return [(x, y, x + width, y + height) for x, y, width, height in sides]


def ask(at: float = 0.0) -> Step:
    return Step("", "request", 0, 2, "get_data", at=at)


def test_bands_of_a_lane_that_go_on_together_stand_side_by_side() -> None:
    bands = (Band(0, 0, 3, "held"), Band(0, 1, 2, "blind"), Band(0, 3, None, "over"))
    root = drawn(*[ask()] * 5, bands=bands)
    (held,), (blind,), (over,) = (boxes(root, kind) for kind in ("held", "blind", "over"))
    assert blind[0] > held[2]
    assert over[0] == held[0]  # the first has ended
    assert over[1] == held[3]


@pytest.mark.parametrize("label", ["fence 0x5", "a label that is longer than its band"])
def test_a_band_has_room_for_its_label(label: str) -> None:
    (held,) = boxes(drawn(ask(), ask(), bands=(Band(1, 0, 1, "held", label),)), "held")
    assert held[3] - held[1] >= len(label) * PER_CHARACTER


@pytest.mark.parametrize(("kind", "lane", "label"), [
    ("gap", None, "four seconds of silence, and twelve pings"),
    ("note", 0, "A's process goes on, and knows of nothing yet"),
    ("fault", 2, "the server has executed it, and nobody will know"),
])  # fmt: skip
def test_words_cross_no_band_and_cover_the_lanes_that_they_cross(
    kind: str, lane: int | None, label: str
) -> None:
    step = Step("", kind, lane, None, label, bad=kind == "fault")
    root = drawn(step, ask(), bands=(Band(1, 0, None, "held"),))
    (band,), (_, words) = boxes(root, "held"), boxes(root, "back")
    assert words[2] <= band[0] or words[0] >= band[2]
    assert words[2] - words[0] >= len(step.label) * PER_CHARACTER
    assert words[2] <= float(root.get("width", 0))


def test_time_to_scale_gives_seconds_their_length_and_each_step_a_row() -> None:
    root = drawn(ask(0.0), ask(0.001), ask(4.0), bands=(Band(0, 1, 2, "held"),), scale=40)
    (held,) = boxes(root, "held")
    assert held[3] - held[1] == round(3.999 * 40)
    assert held[1] > TOP + BAND


def test_a_lesson_shows_outages_and_locks_as_bands() -> None:
    text = lesson_page.drawn("paused-holder")
    labels = re.findall(r'rotate\(-90\)" text-anchor="middle">(.*?)<', text)
    assert sorted(labels) == ["expired", "fence 0x5", "fence 0x6", "no connection", "stands still"]
    held = boxes(ElementTree.fromstring(text), "held")
    assert held[0][3] < held[1][1]  # A's lock has ended before B's begins


def test_a_client_whose_frames_are_folded_is_no_longer_without_a_connection() -> None:
    root = ElementTree.fromstring(lesson_page.drawn("session-move"))
    (a, c), height = boxes(root, "blind"), float(root.get("height", 0))
    assert a[3] < c[1]
    assert c[3] < height - 30


def test_a_label_is_in_the_middle_of_its_band_and_has_a_ground() -> None:
    root = drawn(*[ask()] * 5, bands=(Band(1, 0, None, "held", "four"),))
    assert len(boxes(root, "held ground")) == 1
    (name,) = (e for e in root.iter() if "rotate" in e.get("transform", ""))
    middle = float(name.get("transform", "").split()[1].strip(")"))
    assert middle - 4 * PER_CHARACTER / 2 > TOP + 10 + 30
    assert middle + 4 * PER_CHARACTER / 2 < TOP + 10 + 4 * 30
