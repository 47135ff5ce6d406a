"""The numbers that the command line takes: argparse types, which refuse with a cure."""

import argparse
import math


def count(text: str) -> int:
    """A whole number, 0 or more."""
    return _at_least(0, text)


def positive(text: str) -> int:
    """A whole number, 1 or more."""
    return _at_least(1, text)


def positive_number(text: str) -> float:
    """A finite number above 0."""
    number = _number(text)
    if not (number > 0 and math.isfinite(number)):
        raise argparse.ArgumentTypeError(f"{text}: use a finite number above 0")
    return number


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


def _at_least(smallest: int, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: use a whole number, {smallest} or more") from None
    if number < smallest:
        raise argparse.ArgumentTypeError(f"{text}: use {smallest} or more")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: use a number") from None
