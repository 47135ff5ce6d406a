"""Draws what plans move as SVG: bytes of a trainer and batch by kind, a bar for each policy or window, in panels."""

from collections.abc import Mapping, Sequence
from html import escape

from bagpipe_hpc.terminal import printable
from bagpipe_hpc.tools.policy_comparison.traffic import MOVED, Traffic

_LEFT, _WIDTH, _BAR, _GAP, _HEAD = 260, 620, 18, 8, 34
"""In pixels: where bars begin, length of the longest bar, thickness, distance, and height of a panel's title."""
_COLOURS = ("#0969da", "#54aeff", "#8250df", "#bc4c00", "#fb8f44", "#1a7f37", "#4ac26b")
"""Colours of the kinds in `MOVED`."""
_TITLES = ("fetched", "written back", "added", "summed now", "summed later", "copies", "gradients sent home")
_STYLE = (
    "text { fill: #1f2328; } .small { font-size: 12px; } @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } "
    "svg { background: #0d1117; } }"
)

Bar = tuple[str, Traffic]
"""The name of a bar, and what is moved."""
Panels = Mapping[str, Sequence[Bar]]
"""Bars by the title of their panel."""


def plot_svg(panels: Panels) -> str:
    """The drawing, panels and bars in the order in which they are given."""
    longest = max((traffic.total_bytes for bars in panels.values() for _, traffic in bars), default=0.0) or 1.0
    title = "Bytes that a trainer moves for a batch"
    body, top = _legend(), 80
    for name, bars in panels.items():
        body.append(f'<text x="20" y="{top + 20}" font-weight="bold">{escape(name)}</text>')
        top += _HEAD
        for label, traffic in bars:
            body += _bar(label, traffic, top, _WIDTH / longest)
            top += _BAR + _GAP
        top += _GAP
    width, height = _LEFT + _WIDTH + 110, top + 20
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            'aria-labelledby="title" font-family="Helvetica, Arial, sans-serif" font-size="14">',
            f'<title id="title">{title}</title>',
            f"<style>{_STYLE}</style>",
            f'<text x="20" y="28" font-weight="bold">{title}</text>',
            *body,
            "</svg>",
            "",
        ]
    )


def _legend() -> list[str]:
    lines, left = [], 20
    for colour, name in zip(_COLOURS, _TITLES, strict=True):
        lines.append(f'<rect x="{left}" y="46" width="12" height="12" fill="{colour}"/>')
        lines.append(f'<text x="{left + 18}" y="57" class="small">{name}</text>')
        left += 40 + 7 * len(name)
    return lines


def _bar(label: str, traffic: Traffic, top: int, pixels_per_byte: float) -> list[str]:
    name = escape(printable(label))
    lines = [f'<text x="{_LEFT - 10}" y="{top + 14}" text-anchor="end" class="small">{name}</text>']
    left = float(_LEFT)
    for kind, colour in zip(MOVED, _COLOURS, strict=True):
        width = traffic.bytes[kind] * pixels_per_byte
        if width:
            lines.append(f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>')
        left += width
    lines.append(f'<text x="{left + 8:.1f}" y="{top + 14}" class="small">{traffic.total_bytes / 1e3:,.0f} kB</text>')
    return lines
