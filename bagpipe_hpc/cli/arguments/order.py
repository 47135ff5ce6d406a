"""Lets overrides stand anywhere among a command's arguments: argparse takes only the first run of positionals."""

import argparse
import math
import re
from collections.abc import Sequence

_OVERRIDE = re.compile(r"[a-z_]+\.\w+\s*=")
_OPTION = re.compile(r"-[^\d.]")  # -1 and -.5 are values


def positionals_first(options: Sequence[argparse.Action], arguments: Sequence[str]) -> list[str]:
    """Move the positionals to the front: the file or folder, then the overrides in their order.

    An override ends the values of an option that takes several. The first positional that does not look like an
    override is the file or folder; where all look like one, the first positional is.

    Args:
        options: the options that the command takes.
        arguments: the arguments as typed; returned unchanged where one of them is `--`.
    """
    if "--" in arguments:
        return list(arguments)
    positionals: list[str] = []
    others: list[str] = []
    needed, allowed = 0.0, 0.0  # values that the last option still needs, and may take
    for argument in arguments:
        if _OPTION.match(argument):
            others.append(argument)
            allowed = 0 if "=" in argument else _most_values(options, argument)
            needed = min(1, allowed)
        elif needed or (allowed and not _OVERRIDE.match(argument)):
            others.append(argument)
            needed, allowed = 0, allowed - 1
        else:
            positionals.append(argument)
            allowed = 0
    named = next((index for index, text in enumerate(positionals) if not _OVERRIDE.match(text)), 0)
    return [*positionals[named : named + 1], *positionals[:named], *positionals[named + 1 :], *others]


def _most_values(options: Sequence[argparse.Action], argument: str) -> float:
    """How many values may follow an option; 0 where it is unknown or ambiguous: argparse reports that."""
    exact = [option for option in options if argument in option.option_strings]
    found = exact or [option for option in options if any(name.startswith(argument) for name in option.option_strings)]
    if len(found) != 1:
        return 0
    nargs = found[0].nargs
    return 1 if nargs is None else nargs if isinstance(nargs, int) else math.inf
