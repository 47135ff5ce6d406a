"""Draw the pictures of the concept pages: `python scripts/docs/draw_concepts.py docs/img`.

All of them show one example: ten batches, six rows of a table, and a window of four batches. What stays in the cache,
what leaves and what is summed when is computed here by the rules of docs/architecture.md, not drawn by eye.
"""

import sys
from pathlib import Path
from xml.sax.saxutils import escape

USES = {
    "A": (1, 2, 4, 9),
    "B": (1, 3, 4, 5, 6, 8, 10),
    "C": (4, 6),
    "D": (3,),
    "E": (5, 7, 8),
    "F": (6, 10),
}
"""Batches that look each row up."""
BATCHES = 10
WINDOW = 4
TRAINED = 4
"""The batch that is being trained in the pictures."""

STYLE = """
    text   { fill: #1f2328; font: 15px Helvetica, Arial, sans-serif; }
    .mid   { text-anchor: middle; }
    .end   { text-anchor: end; }
    .bold  { font-weight: bold; }
    .faint { fill: #57606a; font-size: 14px; }
    .box   { fill: #ffffff; stroke: #57606a; stroke-width: 1.5; }
    .inner { fill: #eaeef2; stroke: #8c959f; }
    .grid  { stroke: #d0d7de; }
    .frame { fill: #0969da; fill-opacity: .10; stroke: #0969da; stroke-width: 2; }
    .stay  { fill: #aceebb; stroke: #1a7f37; }
    .use   { fill: #1f2328; }
    .work  { fill: #ffd8b5; stroke: #bc4c00; }
    .sum   { fill: #ffc1c0; stroke: #cf222e; }
    .plan  { stroke: #0969da; } .plan.tip, text.plan { fill: #0969da; stroke: none; }
    .rows  { stroke: #1a7f37; } .rows.tip, text.rows { fill: #1a7f37; stroke: none; }
    .sums  { stroke: #cf222e; } .sums.tip, text.sums { fill: #cf222e; stroke: none; }
    .grey  { stroke: #57606a; } .grey.tip { fill: #57606a; stroke: none; }
    .line  { fill: none; stroke-width: 2; }
    @media (prefers-color-scheme: dark) {
      text   { fill: #e6edf3; }
      .faint { fill: #9da7b3; }
      .box   { fill: #161b22; stroke: #8b949e; }
      .inner { fill: #262c36; stroke: #6e7681; }
      .grid  { stroke: #3d444d; }
      .frame { fill: #58a6ff; fill-opacity: .15; stroke: #58a6ff; }
      .stay  { fill: #1b4a2a; stroke: #3fb950; }
      .use   { fill: #e6edf3; }
      .work  { fill: #5a3210; stroke: #f0883e; }
      .sum   { fill: #5c1f22; stroke: #ff7b72; }
      .plan  { stroke: #58a6ff; } .plan.tip, text.plan { fill: #58a6ff; }
      .rows  { stroke: #3fb950; } .rows.tip, text.rows { fill: #3fb950; }
      .sums  { stroke: #ff7b72; } .sums.tip, text.sums { fill: #ff7b72; }
      .grey  { stroke: #9da7b3; } .grey.tip { fill: #9da7b3; }
    }
"""


class Picture:
    """An SVG in the making: shapes are added in the order in which they cover each other."""

    def __init__(self, width: int, height: int, title: str, description: str) -> None:
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'aria-labelledby="title desc">\n  <title id="title">{escape(title)}</title>\n'
            f'  <desc id="desc">{escape(description)}</desc>\n  <style>{STYLE}  </style>\n  <defs>\n'
        )
        for kind in ("plan", "rows", "sums", "grey"):
            self._head += (
                f'    <marker id="{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
                f'orient="auto-start-reverse"><path class="{kind} tip" d="M0 0 10 5 0 10z"/></marker>\n'
            )
        self._head += "  </defs>\n"
        self._shapes: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, kind: str = "box", round_by: int = 6) -> None:
        """A rectangle with round corners; `kind` is its class in the style."""
        self._shapes.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_by}"/>'
        )

    def text(self, x: float, y: float, words: str, kind: str = "mid") -> None:
        """Words: those of the class `mid` are centred at x, those of `end` end there."""
        self._shapes.append(f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(words)}</text>')

    def arrow(self, path: str, kind: str, both: bool = False) -> None:
        """A path with a tip at its end, or at both."""
        start = f' marker-start="url(#{kind})"' if both else ""
        self._shapes.append(f'<path class="{kind} line" d="{path}" marker-end="url(#{kind})"{start}/>')

    def line(self, path: str, kind: str) -> None:
        """A path without tips."""
        self._shapes.append(f'<path class="{kind}" d="{path}"/>')

    def dot(self, x: float, y: float) -> None:
        """A use of a row."""
        self._shapes.append(f'<circle class="use" cx="{x:g}" cy="{y:g}" r="6"/>')

    def write(self, path: Path) -> None:
        """Write the file."""
        shapes = "\n".join(f"  {shape}" for shape in self._shapes)
        path.write_text(f"{self._head}{shapes}\n</svg>\n", encoding="utf-8")


def stays(uses: tuple[int, ...]) -> list[tuple[int, int]]:
    """First and last batch of each stay in the cache: a row stays while its next use is within the window."""
    found = [(uses[0], uses[0])]
    for batch in uses[1:]:
        if batch - found[-1][1] < WINDOW:
            found[-1] = (found[-1][0], batch)
        else:
            found.append((batch, batch))
    return found


def rows_of(batch: int) -> str:
    """The rows that a batch looks up."""
    return "".join(row for row, uses in USES.items() if batch in uses)


def roles() -> Picture:
    """The roles, and what passes between them."""
    picture = Picture(
        960, 400, "The roles", "The oracle reads ahead and tells trainers what to do; servers hold the rows."
    )
    picture.box(30, 40, 210, 76)
    picture.text(135, 72, "prepared samples", "mid bold")
    picture.text(135, 96, "on disk, known in advance", "mid faint")
    picture.box(370, 40, 220, 76)
    picture.text(480, 72, "oracle", "mid bold")
    picture.text(480, 96, "reads ahead, decides", "mid faint")
    picture.arrow("M240 78 H364", "grey")
    picture.text(302, 68, "ids", "mid faint")
    for number, x in enumerate((300, 520)):
        picture.box(x, 190, 180, 96)
        picture.text(x + 90, 216, f"trainer {number}", "mid bold")
        picture.box(x + 16, 230, 148, 42, "stay")
        picture.text(x + 90, 256, "cache of rows")
        picture.arrow(f"M{480 + (x - 410) / 4:g} 116 L{x + 90} 184", "plan")
    picture.text(580, 146, "a plan for each batch", "plan")
    picture.arrow("M480 238 H520", "sums", both=True)
    picture.text(410, 312, "gradients: sums over all trainers", "sums")
    picture.box(730, 160, 200, 160)
    picture.text(830, 190, "servers", "mid bold")
    picture.text(830, 216, "hold every row of", "mid faint")
    picture.text(830, 236, "every table, in memory", "mid faint")
    for number in (0, 1):
        picture.box(752 + number * 82, 254, 74, 44, "inner")
        picture.text(789 + number * 82, 281, f"part {number}")
    picture.arrow("M700 225 H724", "rows", both=True)
    picture.arrow("M370 286 V356 H830 V326", "rows", both=True)
    picture.text(610, 378, "rows are fetched, and written back", "mid rows")
    picture.arrow("M135 116 V238 H294", "grey")
    picture.text(150, 262, "numbers and labels", "faint")
    return picture


LEFT, TOP, COLUMN, LINE = 150, 92, 72, 40


def window() -> Picture:
    """Rows over batches: uses, stays in the cache, and the window over them."""
    picture = Picture(
        960,
        480,
        "A window moves over the batches",
        "Six rows over ten batches. A row is in the cache from its first use to the last one that is seen in time.",
    )
    bottom = TOP + LINE * len(USES)
    picture.text(LEFT - 20, TOP - 18, "batch", "end faint")
    for batch in range(1, BATCHES + 1):
        x = LEFT + COLUMN * (batch - 0.5)
        picture.text(x, TOP - 18, str(batch), "mid bold" if batch == TRAINED else "mid")
        picture.line(f"M{x:g} {TOP - 8} V{bottom}", "grid")
    picture.box(LEFT + COLUMN * (TRAINED - 1) + 4, TOP - 44, COLUMN * WINDOW - 8, bottom - TOP + 58, "frame", 10)
    picture.text(LEFT + COLUMN * (TRAINED + 1), TOP - 58, "the window: 4 batches, known and decided", "mid plan")
    for number, (row, uses) in enumerate(USES.items()):
        y = TOP + LINE * (number + 0.5)
        picture.text(LEFT - 20, y + 5, f"row {row}", "end")
        for first, last in stays(uses):
            picture.box(LEFT + COLUMN * (first - 1) + 16, y - 13, COLUMN * (last - first + 1) - 32, 26, "stay", 13)
        for batch in uses:
            picture.dot(LEFT + COLUMN * (batch - 0.5), y)
    y = bottom + 46
    picture.text(LEFT + COLUMN * (TRAINED - 0.5), y - 6, "trains now", "mid bold")
    picture.arrow(f"M{LEFT + COLUMN * 7 + 10} {y - 10} H{LEFT + COLUMN * 8}", "plan")
    picture.text(LEFT + COLUMN * 8 + 10, y - 5, "it moves on", "plan")
    picture.dot(60, y + 44)
    picture.text(76, y + 49, "a batch looks the row up", "")
    picture.box(300, y + 31, 60, 26, "stay", 13)
    picture.text(372, y + 49, "the row is in the cache: fetched before the bar, written back behind it", "")
    return picture


def homes() -> Picture:
    """Two trainers and the rows that live with them."""
    picture = Picture(
        960, 340, "Rows with one home", "Each row lives at one trainer; the other gets a copy and sends its gradient."
    )
    for number, x in enumerate((40, 580)):
        picture.box(x, 40, 340, 220)
        picture.text(x + 170, 68, f"trainer {number}", "mid bold")
    for x, y, words, kind in (
        (64, 96, "row A lives here", "stay"),
        (64, 184, "copy of row B", "inner"),
        (604, 96, "copy of row A", "inner"),
        (604, 184, "row B lives here", "stay"),
    ):
        picture.box(x, y, 292, 50, kind)
        picture.text(x + 146, y + 31, words)
    picture.arrow("M360 112 H600", "rows")
    picture.text(480, 104, "weights of A", "mid rows")
    picture.arrow("M600 134 H360", "sums")
    picture.text(480, 152, "gradient of A", "mid sums")
    picture.arrow("M600 200 H360", "rows")
    picture.text(480, 192, "weights of B", "mid rows")
    picture.arrow("M360 222 H600", "sums")
    picture.text(480, 240, "gradient of B", "mid sums")
    picture.text(480, 296, "The home adds the gradients of all trainers, updates the row, and sends new copies.")
    picture.text(480, 320, "It alone fetched the row from its server, and it alone writes it back.", "mid faint")
    return picture


def now_and_later() -> Picture:
    """What a trainer does in three batches, and what waits for what."""
    batch = TRAINED
    now = "".join(row for row in rows_of(batch) if row in rows_of(batch + 1))
    last = "".join(row for row in rows_of(batch) if any(end == batch for _, end in stays(USES[row])))
    later = "".join(row for row in rows_of(batch) if row not in now + last)
    picture = Picture(
        960, 400, "Now and later", "Only rows that the next batch reads are summed at once; other sums hide behind it."
    )
    for y, words in ((90, "compute"), (190, "sums of later rows"), (270, "mover")):
        picture.text(24, y + 5, words, "bold")
    for number, x in enumerate((190, 490, 790)):
        width = 200 if number < 2 else 146
        picture.box(x, 62, width, 56, "work")
        picture.text(x + width / 2, 86, f"batch {batch + number}", "mid bold")
        picture.text(x + width / 2, 106, f"reads {', '.join(rows_of(batch + number))}", "mid faint")
        if number < 2:
            picture.box(x + 208, 62, 84, 56, "sum")
            picture.text(x + 250, 86, "sum now", "mid bold")
            rows = now if number == 0 else "".join(r for r in rows_of(batch + 1) if r in rows_of(batch + 2))
            picture.text(x + 250, 106, ", ".join(rows), "mid faint")
    picture.box(490, 162, 200, 56, "sum")
    picture.text(590, 186, "sum later", "mid bold")
    picture.text(590, 206, f"{', '.join(later)} of batch {batch}", "mid faint")
    picture.arrow("M470 118 V190 H484", "sums")
    picture.box(490, 242, 200, 56, "stay")
    picture.text(590, 266, "write back", "mid bold")
    picture.text(590, 286, f"{', '.join(last)}: no batch in view uses it", "mid faint")
    picture.box(190, 242, 292, 56, "stay")
    coming = "".join(row for row in USES if any(first == batch + 2 for first, _ in stays(USES[row])))
    picture.text(336, 266, "fetch", "mid bold")
    picture.text(336, 286, f"{', '.join(coming)} for batch {batch + 2}", "mid faint")
    picture.line("M190 330 H936", "grid")
    picture.arrow("M190 330 H936", "grey")
    picture.text(936, 352, "time", "end faint")
    picture.text(190, 352, "Only the red boxes in the first line stand between two batches.", "")
    return picture


def checkpoint() -> Picture:
    """Caches over a checkpoint: they empty, rows are copied, and training goes on while the copy is written."""
    picture = Picture(
        960,
        400,
        "A checkpoint",
        "The caches empty, servers copy their rows, training goes on while that is written.",
    )
    for y, words in ((100, "rows in the caches"), (200, "training"), (270, "servers"), (340, "disk")):
        picture.text(24, y + 5, words, "bold")
    picture.line("M190 130 C230 60 250 66 290 66 H440 C470 66 490 110 500 130 Z", "stay")
    picture.line("M590 130 C630 60 650 66 690 66 H936 V130 Z", "stay")
    picture.line("M190 130 H936", "grid")
    picture.box(190, 174, 310, 44, "work")
    picture.text(345, 201, "batches 1 to 100")
    picture.box(590, 174, 346, 44, "work")
    picture.text(763, 201, "batches 101 ...")
    picture.box(508, 244, 74, 44, "stay")
    picture.text(545, 271, "copy")
    picture.box(590, 314, 250, 44, "inner")
    picture.text(715, 341, "write the copy, check it")
    picture.arrow("M545 288 V336 H584", "grey")
    picture.arrow("M844 336 H884", "grey")
    picture.text(892, 341, "done", "bold")
    picture.line("M500 40 V370", "grid")
    picture.line("M590 40 V370", "grid")
    picture.text(545, 34, "training stands still", "mid sums")
    picture.text(345, 34, "the caches empty at the end", "mid faint")
    picture.text(763, 34, "the caches fill anew", "mid faint")
    return picture


def main() -> None:
    """Write all pictures into the folder that is named."""
    folder = Path(sys.argv[1])
    for draw in (roles, window, homes, now_and_later, checkpoint):
        draw().write(folder / f"concept-{draw.__name__.replace('_', '-')}.svg")


if __name__ == "__main__":
    main()
