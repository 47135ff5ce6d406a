"""Hotline's own settings. Standard library only: every command that reads settings does."""

from dataclasses import dataclass

from bagpipe_hpc.config.doors import SettingError


@dataclass(frozen=True)
class HotlineSettings:
    """Hotline's own settings."""

    hot_rows: int = 0
    """The most rows that all trainers keep; 0 for half of `cache.rows`, whose other half is for the rows of a batch."""
    learning_batches: int = 20
    """Batches at the beginning of a segment whose look-ups are counted before any row is hot."""
    refresh_batches: int = 100
    """Batches after which hot rows are chosen anew; 0 for never."""
    decay: float = 0.5
    """Factor of the counts whenever hot rows have been chosen, so that newer look-ups count for more."""

    def __post_init__(self) -> None:
        for name, least in (("hot_rows", 0), ("learning_batches", 1), ("refresh_batches", 0)):
            if (value := getattr(self, name)) < least:
                raise SettingError(name, value, f"use {least} or more")
        if not 0 <= self.decay <= 1:
            raise SettingError("decay", self.decay, "use 0 to 1: 0 forgets, 1 keeps all")
