"""Charts are sound SVG, keep what stands out, and tell lines and bars apart without colours."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.tools.run_report.svg import (
    LOOKS,
    Bar,
    Line,
    bar_chart,
    bar_sample,
    compact,
    line_chart,
    line_sample,
    patterns,
    thinned,
    ticks,
)

NUMBERS = st.floats(-1e12, 1e12, allow_nan=False).map(lambda value: float(f"{value:.6g}"))


@given(NUMBERS, NUMBERS)
def test_ticks_are_few_and_go_from_end_to_end(one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    found = ticks(low, high)
    assert 2 <= len(found) <= 7
    slack = 1e-6 * max(abs(low), abs(high), 1e-280)
    assert found[0] <= low + slack
    assert found[-1] >= high - slack
    assert found == sorted(set(found))


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0.13, 0.87, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (3, 3, [2.6, 2.8, 3.0, 3.2, 3.4]),
        (0, 0, [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ],
)
def test_ticks_are_round(low: float, high: float, found: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(found)


@given(st.lists(NUMBERS, min_size=1, max_size=2000))
def test_a_thinned_line_keeps_its_ends_and_extremes(values: list[float]) -> None:
    points = [(float(at), value) for at, value in enumerate(values)]
    kept = thinned(points, 100)
    assert len(kept) <= max(100, 4)
    assert set(kept) <= set(points)
    assert list(kept) == sorted(kept)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert {min(values), max(values)} <= {value for _, value in kept}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.00123456, "0.001235"),
        (9999, "9999"),
        (9999.6, "10 k"),
        (12_345, "12.35 k"),
        (-2e6, "-2 M"),
        (3e9, "3 G"),
        (5e12, "5 T"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert compact(value) == text


@pytest.mark.parametrize("losses", [(0.45121, 0.45127), (123_400.0, 123_430.0), (0.0, 7.0)])
def test_no_two_ticks_have_one_label(losses: tuple[float, float]) -> None:
    """A loss that hardly changes is why somebody looks at a chart."""
    chart = parsed(line_chart("Loss", "", [Line("run", list(enumerate(losses)), 0)], "step"))
    labels = [text.text for text in chart.findall("text") if text.attrib["text-anchor"] == "end"]
    assert len(labels) > 2
    assert len(set(labels)) == len(labels)


LINES = [Line(f"run <{look}>", [(1.0, 0.5), (2.0, 0.25 * look), (3.0, 7.0)], look) for look in range(LOOKS)]


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def test_a_line_chart_is_described_and_within_its_frame() -> None:
    chart = parsed(line_chart("Loss & more", "It <falls>.", LINES, "step", marks=[2.0, 99.0]))
    title, described = chart[0], chart[1]
    assert (title.text, described.text) == ("Loss & more", "It <falls>.")
    assert chart.attrib["aria-labelledby"].split() == [title.attrib["id"], described.attrib["id"]]
    assert chart.attrib["role"] == "img"
    _, _, width, height = map(float, chart.attrib["viewBox"].split())
    for line in chart.findall("polyline"):
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 < x < width
            assert 0 < y < height
    assert len([path for path in chart.findall("path") if path.attrib["class"] == "mark"]) == 1


def test_lines_differ_without_colours() -> None:
    chart = parsed(line_chart("Loss", "", LINES, "step"))
    dashes = {line.attrib.get("stroke-dasharray", "") for line in chart.findall("polyline")}
    assert len(dashes) == LOOKS
    shapes = {re.sub(r"M\S+ \S+?(?=[a-zA-Z])", "", line_sample(look).split('d="')[1]) for look in range(LOOKS)}
    assert len(shapes) == LOOKS
    first, second_round = line_sample(0), line_sample(LOOKS)
    assert first != second_round


def test_a_line_of_one_point_has_a_marker() -> None:
    chart = parsed(line_chart("AUC", "", [Line("run", [(28.0, 0.5)], 0)], "step"))
    assert [path for path in chart.findall("path") if "marker" in path.attrib["class"]]


def test_bars_are_as_long_as_their_parts_and_differ_in_patterns() -> None:
    bars = [Bar("trainer 0", [1.0, 3.0], "one"), Bar("a very long name of a bar", [0.0, 2.0], "one")]
    chart = parsed(bar_chart("Step", "", [*bars, Bar("trainer 0", [1.0, 0.0], "two")], "ms"))
    boxes = [(float(box.attrib["width"]), box.attrib["fill"]) for box in chart.findall("rect")]
    (one, first), (three, second), (two, _), (again, _) = boxes
    assert (three, two, again) == pytest.approx((3 * one, 2 * one, one), rel=1e-2)
    assert first != second
    texts = [text.text for text in chart.findall("text")]
    assert texts == ["one", "trainer 0", "4", "a very long name …", "2", "two", "trainer 0", "1", "ms"]


def test_what_bars_are_filled_with_is_there() -> None:
    ids = {pattern.attrib["id"] for pattern in parsed(patterns()).iter("pattern")}
    used = {re.findall(r"url\(#(\w+)\)", bar_sample(look))[0] for look in range(2 * LOOKS)}
    assert used == ids
    drawn = [pattern[1].attrib["d"] for pattern in parsed(patterns()).iter("pattern")]
    assert len(set(drawn)) == LOOKS
