"""The description of a folder of this program."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Description:
    """A folder in words.

    Attributes:
        text: several lines for a terminal.
        faults: for each file that is missing, cut off or changed, its path and what is wrong with it.
    """

    text: str
    faults: tuple[str, ...] = ()
