"""Lets an SVG of Matplotlib be read on light and dark pages: no background, and other colours where a page is dark.

A browser applies the style sheet in the file; what knows no `prefers-color-scheme` shows the colours of light pages.
"""

from pathlib import Path

from matplotlib.figure import Figure

DARK = {
    "#000000": "#e6edf3",
    "#4c4c4c": "#b1bac4",
    "#1f77b4": "#58a6ff",
}
"""Colours that a dark page would swallow, and what stands for them there."""


def save_svg(figure: Figure, path: Path) -> None:
    """Save a figure; the same figure gives the same file."""
    figure.savefig(path, transparent=True, metadata={"Date": None})
    path.write_text(with_dark_mode(path.read_text(encoding="utf-8")), encoding="utf-8")


def with_dark_mode(svg: str) -> str:
    """Add the style sheet. Text has no colour of its own in Matplotlib's files: it takes that of the whole picture."""
    rules = [f"svg {{ fill: {DARK['#000000']} }}"]
    for light, dark in DARK.items():
        if light in svg:
            rules += [f'[style*="{part}: {light}"] {{ {part}: {dark} !important }}' for part in ("fill", "stroke")]
    lines = "\n".join(f"   {rule}" for rule in rules)
    sheet = f'  <style type="text/css">\n  @media (prefers-color-scheme: dark) {{\n{lines}\n  }}\n  </style>\n'
    head, end, body = svg.partition(" </defs>\n")
    if not end:
        raise ValueError("not an SVG of Matplotlib: it has no style sheet")
    return head + sheet + end + body
