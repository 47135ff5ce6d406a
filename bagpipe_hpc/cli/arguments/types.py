"""The numbers and paths that the command line takes: argparse types, which refuse with a cure."""

import argparse
import math
from pathlib import Path
from typing import TypeVar

from bagpipe_hpc.config.values import is_for_a_shell

LARGEST = (1 << 63) - 1
"""The largest whole number taken: files and arrays count in int64."""
MOST_NODES = 100_000
"""Most nodes or servers of a cluster that is only thought of."""
MOST_GB = 1e9
"""Most memory of a node."""
MOST_S = 86_400.0
"""Longest time: a day."""
LEAST_GBIT_PER_S, MOST_GBIT_PER_S = 1e-6, 1e6
"""Slowest and fastest link: a kbit/s, and a Pbit/s."""
_Number = TypeVar("_Number", int, float)


def path_text(text: str) -> str:
    """A file or a folder as it is typed, for what may also be a pattern or the short name of a ready schema.

    Raises:
        ArgumentTypeError: the text is empty, as from a shell variable that is not set, which would mean the current
            folder; or it begins with a `~` that the shell did not expand, as in `--output=~/clicks.tsv`.
    """
    if not text:
        raise argparse.ArgumentTypeError("'': name a file or a folder; `.` is the current one")
    if is_for_a_shell(text):
        raise argparse.ArgumentTypeError(
            f"{text!r}: the shell has left the ~ as it is, as it does behind = and in quotes; write $HOME, or ./~ for "
            "a folder of that name"
        )
    return text


def named_path(text: str) -> Path:
    """A file or a folder; raises as `path_text` does."""
    return Path(path_text(text))


def count(text: str) -> int:
    """A whole number, 0 or more."""
    return _at_least(0, text)


def positive(text: str) -> int:
    """A whole number, 1 or more."""
    return _at_least(1, text)


def nodes(text: str) -> int:
    """A number of nodes or servers, 1 or more."""
    return _at_most(MOST_NODES, positive(text))


def nodes_or_none(text: str) -> int:
    """A number of nodes, 0 or more."""
    return _at_most(MOST_NODES, count(text))


def gigabytes(text: str) -> float:
    """Memory of a node in GB, above 0."""
    return _at_most(MOST_GB, positive_number(text))


def seconds(text: str) -> float:
    """A time in seconds, above 0 and no more than a day."""
    return _at_most(MOST_S, positive_number(text))


def positive_number(text: str) -> float:
    """A finite number above 0."""
    number = _number(text)
    if not (number > 0 and math.isfinite(number)):
        raise argparse.ArgumentTypeError(f"{text}: use a finite number above 0")
    return number


def microseconds(text: str) -> float:
    """A time in microseconds, above 0 and no more than a day."""
    return _at_most(MOST_S * 1e6, positive_number(text))


def gbit_per_s(text: str) -> float:
    """Speed of a link in Gbit/s."""
    speed = _at_most(MOST_GBIT_PER_S, positive_number(text))
    if speed < LEAST_GBIT_PER_S:
        raise argparse.ArgumentTypeError(f"{text}: use {LEAST_GBIT_PER_S:f} or more")
    return speed


def fraction(text: str) -> float:
    """A number from 0 up to, not including, 1."""
    number = _number(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"{text}: use a fraction, 0 or more and below 1")
    return number


def percentage(text: str) -> float:
    """A number from 0 to 100."""
    number = _number(text)
    if not 0 <= number <= 100:
        raise argparse.ArgumentTypeError(f"{text}: use a percentage, from 0 to 100")
    return number


def tolerance(text: str) -> float:
    """A number, 0 or more; infinity tolerates everything."""
    number = _number(text)
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"{text}: use a number, 0 or more")
    return number


def _at_most(largest: float, number: _Number) -> _Number:
    if number > largest:
        raise argparse.ArgumentTypeError(f"{number}: use {largest:,.0f} or less")
    return number


def _at_least(smallest: int, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: use a whole number, {smallest} or more") from None
    if number < smallest:
        raise argparse.ArgumentTypeError(f"{text}: use {smallest} or more")
    if number > LARGEST:
        raise argparse.ArgumentTypeError(f"{text}: use {LARGEST} or less")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: use a number") from None
