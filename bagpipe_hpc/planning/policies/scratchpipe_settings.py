"""ScratchPipe's own settings. Standard library only: every command that reads settings does."""

from dataclasses import dataclass

from bagpipe_hpc.config.doors import SettingError

_MOST_BATCHES = 1000


@dataclass(frozen=True)
class ScratchPipeSettings:
    """Its own settings."""

    past: int = 3
    """Batches before the one that rows make room for whose rows stay. They leave behind the first of these."""
    future: int = 2
    """Batches behind it whose rows stay."""

    def __post_init__(self) -> None:
        if not 1 <= self.past <= _MOST_BATCHES:
            raise SettingError("past", self.past, f"use 1 to {_MOST_BATCHES} batches: rows leave before others come")
        if not 0 <= self.future <= _MOST_BATCHES:
            raise SettingError("future", self.future, f"use 0 to {_MOST_BATCHES} batches")
