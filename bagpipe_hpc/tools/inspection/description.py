"""What a look into a folder of this program gives."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Description:
    """A folder in words.

    Attributes:
        text: for a terminal, of several lines.
        faults: of each file that is missing, cut off or changed, its path and what is wrong with it.
    """

    text: str
    faults: tuple[str, ...] = ()
