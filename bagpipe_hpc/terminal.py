"""What a terminal is told, and how wide it is: text that cannot command it, lines that fit. Standard library only."""

import os
import sys
import textwrap
from collections.abc import Sequence

COLUMNS_VARIABLE = "BAGPIPE_TERMINAL_COLUMNS"
"""Set by scripts/run_ranks.sh where its own stderr is a terminal: that of a rank is a pipe to the launcher."""

STDOUT_VARIABLE = "BAGPIPE_STDOUT_TERMINAL"
"""Set by that script, too, where its own stdout is a terminal."""

ERASE_LINE = "\r\x1b[K"
"""Back to the start of the line, which is emptied: for what replaces a line of progress."""

IN_FILE_ONLY = {"in_file_only": True}
"""The `extra` of a log line that is for a rank's log file alone."""

_LAYOUT = "\n\t"
_USUAL_COLUMNS = 80
"""Of a terminal that does not say."""


def columns() -> int:
    """Width of the terminal on which stderr ends, 0 where it ends elsewhere or on one that takes no codes."""
    told = os.environ.get(COLUMNS_VARIABLE, "")
    if told.isdecimal():
        return int(told)
    if not (sys.stderr.isatty() and takes_codes()):
        return 0
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL_COLUMNS
    except OSError:
        return _USUAL_COLUMNS


def takes_codes() -> bool:
    """Whether a terminal carries out codes such as `ERASE_LINE`; one with `TERM=dumb`, as in an editor, shows them."""
    return os.environ.get("TERM") != "dumb"


def is_shown() -> bool:
    """Whether what goes to stdout is shown on a terminal, so that a person reads it and no program does."""
    return bool(os.environ.get(STDOUT_VARIABLE)) or sys.stdout.isatty()


def counted(number: int, noun: str) -> str:
    """How many of something there are: `1 thread`, `2 threads`, `2 batches`."""
    ending = "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}{ending * (number != 1)}"


def shortened(text: str, most: int = 100) -> str:
    """A text whose end is left out, and dots in its place, where it has more than so many characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def shown(value: object) -> str:
    """What Python writes for a value, shortened."""
    return shortened(repr(value))


def line_start() -> str:
    """What a message to stderr begins with: it takes away progress that is on the line of a terminal."""
    return ERASE_LINE if columns() else ""


def show_no_progress() -> None:
    """Treat stderr as what is no terminal, in this process and those that it starts."""
    os.environ[COLUMNS_VARIABLE] = "0"


def printable(text: str, *, is_layout_kept: bool = True) -> str:
    r"""Text in which nothing commands a terminal: a character that is not printable becomes what Python writes, `\x1b`.

    File names, tables' names and what else comes from files or users may hold control characters, marks that turn the
    direction of writing, and bytes that are no text.

    Args:
        text: what is to be shown.
        is_layout_kept: whether line ends and tabs stay as they are, for messages of several lines; not for a name.
    """
    if text.isprintable():
        return text
    kept = _LAYOUT if is_layout_kept else ""
    return "".join(
        letter if letter.isprintable() or letter in kept else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def wrapped(text: str, width: int) -> str:
    """Text whose lines end between words where a terminal is narrower; a longer word, such as a path, stays whole."""
    fill = textwrap.TextWrapper(
        max(20, width - 1),
        subsequent_indent="  ",
        expand_tabs=False,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(line if len(line) < width else fill.fill(line) for line in text.split("\n"))


def fitting(parts: Sequence[str], dispensable: Sequence[int], width: int) -> str:
    """A line of parts, without those that do not fit.

    Args:
        parts: what the line says, in its order.
        dispensable: indices of parts that are left out one after the other, the first one first, until the line fits.
        width: columns of the terminal; 0 takes everything.

    Returns:
        The line, cut at the end only where its other parts alone are too long; it leaves the last column free.
    """
    left_out: set[int] = set()
    for part in [*dispensable, None]:
        line = "  ".join(text for index, text in enumerate(parts) if index not in left_out)
        if not width or len(line) < width:
            return line
        if part is not None:
            left_out.add(part)
    return line[: max(0, width - 1)]
