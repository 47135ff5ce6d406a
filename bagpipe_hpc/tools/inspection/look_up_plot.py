"""Draws look-ups as SVG: how uneven they are, and how soon rows come back."""

import math
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.terminal import printable
from bagpipe_hpc.tools.inspection.look_ups import WITHIN_BATCHES, LookUps

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 380, 300, 70, 60, 110
"""In pixels: size of a panel, position of the first one, and the gap between the two."""
_COLOURS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df")
_NAMED_TABLES = 3
_STYLE = (
    ".axis { stroke: #57606a; fill: none; } .grid { stroke: #d0d7de; } text { fill: #1f2328; } "
    ".small { font-size: 12px; } @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } "
    ".grid { stroke: #30363d; } svg { background: #0d1117; } }"
)

Points = Sequence[tuple[float, float]]


def save_plot(found: LookUps, path: Path) -> None:
    """Write the drawing, whole or not at all."""
    with atomic_write(path) as partial:
        partial.write_text(plot_svg(found), encoding="utf-8")


def plot_svg(found: LookUps) -> str:
    """Two panels: shares of look-ups on the most frequent ids, of all and of the largest tables; distances of uses."""
    largest = sorted(found.tables, key=lambda table: -table.ids)[:_NAMED_TABLES]
    curves = [("all tables", found.total.curve), *((table.table, table.curve) for table in largest)]
    lowest = math.floor(math.log10(min(share for _, curve in curves for share, _ in curve)))
    reuse = found.reuse
    highest = max(1, math.ceil(math.log10(max(reuse.batches, *WITHIN_BATCHES))))
    skew = _Panel(_LEFT, (lowest, 0), "share of the ids, most frequent first", "share of the look-ups")
    again = _Panel(
        _LEFT + _WIDTH + _GAP, (0, highest), "batches since the last use of the row", "share of the uses of rows"
    )
    width, height = _LEFT + 2 * _WIDTH + _GAP + 30, _TOP + _HEIGHT + 130
    title = f"Look-ups of {found.samples} samples, batches of {reuse.batch_size}"
    marks = [(float(limit), share) for limit, share in zip(WITHIN_BATCHES, reuse.within, strict=True)]
    body = [
        *skew.lines([f"{10.0 ** (power + 2):.4g} %" for power in range(lowest, 1)]),
        *(line for place, (name, curve) in enumerate(curves) for line in skew.curve(curve, name, place)),
        *again.lines([str(10**power) for power in range(highest + 1)]),
        *again.curve([(float(limit), share) for limit, share in reuse.curve], "at most so far apart", 0),
        *again.marks(marks),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            'aria-labelledby="title" font-family="Helvetica, Arial, sans-serif" font-size="14">',
            f'<title id="title">{title}</title>',
            f"<style>{_STYLE}</style>",
            f'<text x="{_LEFT}" y="28" font-weight="bold">{title}</text>',
            *body,
            "</svg>",
            "",
        ]
    )


class _Panel:
    """A panel with a logarithmic horizontal axis, and shares from 0 to 1 upwards.

    Args:
        left: where it begins, in pixels.
        powers: exponents of ten at the ends of the horizontal axis.
        across: title of the horizontal axis.
        upwards: title of the vertical axis.
    """

    def __init__(self, left: int, powers: tuple[int, int], across: str, upwards: str) -> None:
        self._left, self._powers, self._across, self._upwards = left, powers, across, upwards

    def _place(self, across: float, share: float) -> tuple[float, float]:
        first, last = self._powers
        along = (math.log10(across) - first) / max(1, last - first)
        return self._left + _WIDTH * along, _TOP + _HEIGHT * (1 - share)

    def lines(self, names: Sequence[str]) -> Iterable[str]:
        """Axes, grid and their texts; a name for each power of ten."""
        bottom = _TOP + _HEIGHT
        for power, name in enumerate(names, start=self._powers[0]):
            x, _ = self._place(10.0**power, 0)
            yield f'<line class="grid" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}"/>'
            yield f'<text class="small" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{name}</text>'
        for tenths in range(0, 11, 2):
            _, y = self._place(10.0 ** self._powers[0], tenths / 10)
            yield f'<line class="grid" x1="{self._left}" y1="{y:.1f}" x2="{self._left + _WIDTH}" y2="{y:.1f}"/>'
            yield f'<text class="small" x="{self._left - 8}" y="{y + 4:.1f}" text-anchor="end">{10 * tenths} %</text>'
        yield f'<rect class="axis" x="{self._left}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}"/>'
        middle = self._left + _WIDTH / 2
        yield f'<text x="{middle:.0f}" y="{bottom + 40}" text-anchor="middle">{self._across}</text>'
        yield f'<text x="{self._left}" y="{_TOP - 12}">{self._upwards}</text>'

    def curve(self, points: Points, name: str, number: int) -> Iterable[str]:
        """A line, and its name below the panel."""
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self._place(*point) for point in points))
        colour, y = _COLOURS[number], _TOP + _HEIGHT + 60 + 18 * number
        shown = escape(printable(name, is_layout_kept=False))
        yield f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>'
        yield f'<rect x="{self._left}" y="{y - 6}" width="24" height="3" fill="{colour}"/>'
        yield f'<text class="small" x="{self._left + 32}" y="{y}">{shown}</text>'

    def marks(self, points: Points) -> Iterable[str]:
        """Points with their values."""
        for across, share in points:
            x, y = self._place(across, share)
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{_COLOURS[0]}"/>'
            yield f'<text class="small" x="{x + 6:.1f}" y="{y + 16:.1f}">{across:.0f}: {share:.1%}</text>'
