"""ScratchPipe's own settings. Standard library only: every command that reads settings does."""

from dataclasses import dataclass

from bagpipe_hpc.config.doors import SettingError

_MOST_BATCHES = 1000


@dataclass(frozen=True)
class ScratchPipeSettings:
    """Which rows stay when others need room."""

    past: int = 3
    """When a batch needs room, the rows of so many batches before it stay. Those evicted leave after the first of these
    batches."""
    future: int = 2
    """The rows of so many batches after it stay, too."""

    def __post_init__(self) -> None:
        if not 1 <= self.past <= _MOST_BATCHES:
            raise SettingError("past", self.past, f"use 1 to {_MOST_BATCHES} batches: rows leave before others come")
        if not 0 <= self.future <= _MOST_BATCHES:
            raise SettingError("future", self.future, f"use 0 to {_MOST_BATCHES} batches")
