"""The own settings of placements of whole tables. Standard library only: every command that reads settings does."""

from dataclasses import dataclass
from pathlib import Path

from bagpipe_hpc.config.doors import SettingError


@dataclass(frozen=True)
class AssignmentSettings:
    """Whole tables on servers."""

    server_gb: float = 0.0
    """Most GB (10**9 bytes) of rows, with their optimizer's state, that a server may hold; 0 for any."""

    def __post_init__(self) -> None:
        if not 0 <= self.server_gb < float("inf"):
            raise SettingError("server_gb", self.server_gb, "use a number of GB, or 0 for any")


@dataclass(frozen=True)
class RandomSettings(AssignmentSettings):
    """Whole tables on servers at random."""

    placement_seed: int = 1
    """Of the random numbers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.placement_seed < 0:
            raise SettingError("placement_seed", self.placement_seed, "use 0 or more")


@dataclass(frozen=True)
class StatisticsSettings(AssignmentSettings):
    """Whole tables on servers by how often they are looked up."""

    statistics: str = ""
    """File of statistics of access, written by `bagpipe inspect SHARDS --statistics FILE` (docs/data.md)."""

    @property
    def statistics_path(self) -> Path:
        """The file.

        Raises:
            SettingError: none is named.
        """
        if not self.statistics:
            raise SettingError(
                "tables.statistics", "", "name a file that `bagpipe inspect SHARDS --statistics FILE` has written"
            )
        return Path(self.statistics)
