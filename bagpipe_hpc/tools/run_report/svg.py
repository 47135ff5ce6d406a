"""Charts as SVG without colours of their own: a page's style sheet has them, for light, dark and paper.

Lines differ in dashes and markers as well, bars in patterns. Each chart has a title and a description for screen
readers; a page also shows its numbers in a table.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

LOOKS = 6
"""Number of looks (colour, dashes, marker, pattern) that a style sheet defines; from the seventh on they repeat."""
_WIDTH, _HEIGHT = 440, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 14, 12, 44
_BAR, _GAP, _LABELS, _TOTALS = 17, 9, 118, 62
_LONGEST_LABEL, _LONGEST_GROUP = 18, 60
"""Most letters of the label before a bar, and of the label above a group of bars."""
_MARKERS = 7
"""How many markers a line has."""
_STEPS = 5
"""Intervals between the numbers of an axis, usually; two more where its ends are not round."""
_DIGITS, _MOST_DIGITS = 4, 6
"""Digits of a number: usually, and at most, where numbers of an axis would otherwise look alike."""
_LEAST = 1e-290
"""A smaller relative difference counts as none: floats could not represent the parts of such an axis."""
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "1 4", "12 4")

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Attributes:
        name: what it shows.
        points: points in the order of the horizontal axis.
        look: number of its colour, dashes and markers.
    """

    name: str
    points: Points
    look: int


@dataclass(frozen=True)
class Bar:
    """A bar of several parts, one after the other.

    Attributes:
        label: text before the bar.
        parts: value of each kind, in the order of the kinds; 0 draws nothing.
        group: text above the first of several bars of one group; empty for none.
    """

    label: str
    parts: Sequence[float]
    group: str = ""


def compact(value: float, digits: int = _DIGITS) -> str:
    """A number in few letters: `12.5 k`, `0.0025`, `3 M`."""
    size = abs(value)
    for limit, scale, unit in ((1e12, 1e12, " T"), (1e9, 1e9, " G"), (1e6, 1e6, " M"), (9999.5, 1e3, " k")):
        if size >= limit:
            return f"{value / scale:.{digits}g}{unit}"
    return f"{value:.{digits}g}"


def tick_labels(values: Sequence[float]) -> list[str]:
    """The numbers of an axis in few letters, but as many as it takes for them to differ, if there is room."""
    for digits in range(_DIGITS, _MOST_DIGITS):
        labels = [compact(value, digits) for value in values]
        if len(set(labels)) == len(labels):
            return labels
    return [compact(value, _MOST_DIGITS) for value in values]


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` or below to `high` or above, seven at most."""
    if high - low < _LEAST:
        low, high = (low - 0.1 * abs(low), low + 0.1 * abs(low)) if abs(low) > 10 * _LEAST else (0.0, 1.0)
    rough = (high - low) / _STEPS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, last + 1)]


def thinned(points: Points, most: int = 300) -> Points:
    """The same line with at most `most` points: the first, lowest, highest and last of each stretch."""
    if len(points) <= most:
        return points
    size = math.ceil(4 * len(points) / most)
    kept: list[tuple[float, float]] = []
    for first in range(0, len(points), size):
        part = range(first, min(first + size, len(points)))
        lowest, highest = min(part, key=lambda at: points[at][1]), max(part, key=lambda at: points[at][1])
        kept += [points[at] for at in sorted({part[0], lowest, highest, part[-1]})]
    return kept


def line_chart(name: str, description: str, lines: Sequence[Line], across: str, marks: Sequence[float] = ()) -> str:
    """Lines over a horizontal axis.

    Args:
        name: name of the chart; an identifier is made of it.
        description: what the chart shows, in words.
        lines: lines with at least one point each.
        across: title of the horizontal axis.
        marks: places on it that get a vertical line.
    """
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    x_ticks, y_ticks = ticks(min(xs), max(xs)), ticks(min(ys), max(ys))
    first, last = min(xs), max(xs)
    if first == last:
        first, last = x_ticks[0], x_ticks[-1]
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x_at(value: float) -> float:
        return _LEFT + width * (value - first) / (last - first)

    def y_at(value: float) -> float:
        return _TOP + height * (1 - (value - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]))

    body: list[str] = []
    for tick, label in zip(y_ticks, tick_labels(y_ticks), strict=True):
        y = y_at(tick)
        body.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        body.append(f'<text x="{_LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    bottom = _TOP + height
    for tick, label in zip(x_ticks, tick_labels(x_ticks), strict=True):
        if first <= tick <= last:
            body.append(f'<path class="axis" d="M{x_at(tick):.1f} {bottom}v4"/>')
            body.append(f'<text x="{x_at(tick):.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
    body.append(f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}"/>')
    body.append(f'<text x="{_LEFT + width / 2:.0f}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(across)}</text>')
    body += [f'<path class="mark" d="M{x_at(mark):.1f} {_TOP}V{bottom}"/>' for mark in marks if first <= mark <= last]
    for line in lines:
        placed = [(x_at(x), y_at(y)) for x, y in thinned(line.points)]
        body.append(_stroke(placed, line.look))
        body += [marker(x, y, line.look) for x, y in _chosen(placed, line.look)]
    return _picture(name, description, _HEIGHT, body)


def bar_chart(name: str, description: str, bars: Sequence[Bar], unit: str) -> str:
    """Bars one below the other, each of several parts and followed by its sum.

    Args:
        name: name of the chart; an identifier is made of it.
        description: what the chart shows, in words.
        bars: bars with the same number of parts.
        unit: unit of the values.
    """
    longest = max((sum(bar.parts) for bar in bars), default=0.0) or 1.0
    width = _WIDTH - _LABELS - _TOTALS
    body: list[str] = []
    y, group = float(_TOP), ""
    for bar in bars:
        if bar.group != group:
            group = bar.group
            body.append(f'<text class="group" x="0" y="{y + 13:.0f}">{_cut(group, _LONGEST_GROUP)}</text>')
            y += _BAR + _GAP / 2
        label = _cut(bar.label, _LONGEST_LABEL)
        body.append(f'<text x="{_LABELS - 7}" y="{y + 13:.0f}" text-anchor="end">{label}</text>')
        left = float(_LABELS)
        for kind, value in enumerate(bar.parts):
            length = width * value / longest
            if length > 0:
                size = f'x="{left:.1f}" y="{y:.0f}" width="{length:.1f}" height="{_BAR}"'
                body.append(f'<rect class="part" {size} fill="url(#look{kind % LOOKS})"/>')
            left += length
        body.append(f'<text x="{left + 5:.1f}" y="{y + 13:.0f}">{compact(sum(bar.parts))}</text>')
        y += _BAR + _GAP
    body.append(f'<path class="axis" d="M{_LABELS} {_TOP - 4}V{y - _GAP + 4:.0f}"/>')
    body.append(f'<text x="{_LABELS}" y="{y + 12:.0f}">{escape(unit)}</text>')
    return _picture(name, description, round(y) + 20, body)


def line_sample(look: int) -> str:
    """A short line for a legend."""
    body = _stroke([(1, 7), (33, 7)], look) + marker(17, 7, look)
    return f'<svg class="sample" viewBox="0 0 34 14" width="34" height="14" aria-hidden="true">{body}</svg>'


def bar_sample(look: int) -> str:
    """A box for a legend."""
    box = f'<rect class="part" x="0.5" y="0.5" width="17" height="13" fill="url(#look{look % LOOKS})"/>'
    return f'<svg class="sample" viewBox="0 0 18 14" width="18" height="14" aria-hidden="true">{box}</svg>'


def patterns() -> str:
    """What bars are filled with; a page needs it once."""
    drawn = ("", "M0 6L6 0", "M3 3h.1", "M0 0L6 6", "M0 3H6", "M3 0V6")
    made = (
        f'<pattern id="look{look}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<rect width="6" height="6" class="fill{look}"/>'
        f'<path d="{path}" class="{"dots" if look == 2 else "hatch"}"/></pattern>'
        for look, path in enumerate(drawn)
    )
    return f'<svg class="patterns" width="0" height="0" aria-hidden="true"><defs>{"".join(made)}</defs></svg>'


def marker(x: float, y: float, look: int) -> str:
    """A mark on a line: a circle, a square, a triangle, a diamond, a cross or a plus."""
    shapes = (
        f"M{x - 3.5:.1f} {y:.1f}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
        f"M{x - 3.2:.1f} {y - 3.2:.1f}h6.4v6.4h-6.4z",
        f"M{x:.1f} {y - 4.2:.1f}l4 7h-8z",
        f"M{x:.1f} {y - 4.5:.1f}l4.5 4.5l-4.5 4.5l-4.5 -4.5z",
        f"M{x - 3.2:.1f} {y - 3.2:.1f}l6.4 6.4m0 -6.4l-6.4 6.4",
        f"M{x - 4:.1f} {y:.1f}h8m-4 -4v8",
    )
    return f'<path class="marker look{look % LOOKS}" d="{shapes[look % LOOKS]}"/>'


def _stroke(placed: Points, look: int) -> str:
    dash = _DASHES[(look + look // LOOKS) % LOOKS]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    return f'<polyline class="line look{look % LOOKS}"{dashed} points="{points}"/>'


def _chosen(placed: Points, look: int) -> Iterator[tuple[float, float]]:
    """Where markers stand: at all points of a short line, else at some, which differ from line to line."""
    if len(placed) <= _MARKERS:
        yield from placed
        return
    step = len(placed) / _MARKERS
    for number in range(_MARKERS):
        yield placed[min(len(placed) - 1, int(step * (number + (look % LOOKS + 0.5) / LOOKS)))]


def _cut(text: str, most: int) -> str:
    return escape(text if len(text) <= most else f"{text[: most - 1]}…")


def _picture(name: str, description: str, height: int, body: Sequence[str]) -> str:
    key = "-".join("".join(letter if letter.isalnum() else " " for letter in name.lower()).split())
    return "\n".join(
        [
            f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="{key}-t {key}-d">',
            f'<title id="{key}-t">{escape(name)}</title><desc id="{key}-d">{escape(description)}</desc>',
            *body,
            "</svg>",
        ]
    )
