"""ScratchPipe's own settings. Standard library only: every command that reads settings imports this."""

from dataclasses import dataclass

from bagpipe_hpc.config.doors import SettingError

_MOST_BATCHES = 1000


@dataclass(frozen=True)
class ScratchPipeSettings:
    """Which rows stay when others need room."""

    past: int = 3
    """When rows make room for a batch, the rows of this many batches before it stay. Rows leave behind the first of
    these."""
    future: int = 2
    """When rows make room for a batch, the rows of this many batches after it stay."""

    def __post_init__(self) -> None:
        if not 1 <= self.past <= _MOST_BATCHES:
            raise SettingError("past", self.past, f"use 1 to {_MOST_BATCHES} batches: rows leave before others come")
        if not 0 <= self.future <= _MOST_BATCHES:
            raise SettingError("future", self.future, f"use 0 to {_MOST_BATCHES} batches")
