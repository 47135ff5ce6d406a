"""The own settings of placements of whole tables. Standard library only: every command that reads settings does."""

from dataclasses import dataclass
from pathlib import Path

from bagpipe_hpc.config.doors import SettingError

_STATISTICS = "name a file that `bagpipe inspect SHARDS --statistics FILE` has written"
_PLAN = "name a file that `bagpipe place CONFIG --servers S` has written"


def made_file(key: str, name: str, cure: str = _PLAN) -> Path:
    """A file that a command has made; by default a plan.

    Raises:
        SettingError: none is named, or it is not there.
    """
    if not (name and Path(name).exists()):
        raise SettingError(key, name, f"{'is not there' if name else 'none is named'}; {cure}")
    return Path(name)


@dataclass(frozen=True)
class AssignmentSettings:
    """Whole tables on servers."""

    server_gb: float = 0.0
    """The most GB (10**9 bytes) of rows, with their optimizer's state, that a server may hold; 0 for no limit."""

    def __post_init__(self) -> None:
        if not 0 <= self.server_gb < float("inf"):
            raise SettingError("server_gb", self.server_gb, "use a number of GB, or 0 for any")


@dataclass(frozen=True)
class RandomSettings(AssignmentSettings):
    """Whole tables on servers at random."""

    placement_seed: int = 1
    """Seed of the random numbers."""

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
            SettingError: none is named, or it is not there.
        """
        return made_file("tables.statistics", self.statistics, _STATISTICS)


@dataclass(frozen=True)
class PlannedSettings(StatisticsSettings):
    """Whole tables on servers by a plan that `bagpipe place` makes of statistics."""

    plan: str = ""
    """File of the plan: `bagpipe place CONFIG --servers S` writes it, runs read it."""

    @property
    def plan_path(self) -> Path:
        """The file.

        Raises:
            SettingError: none is named, or it is not there.
        """
        return made_file("tables.plan", self.plan)


WEIGHTS = ("accesses", "coverage", "pooling")


@dataclass(frozen=True)
class RecShardSettings(PlannedSettings):
    """Whole tables on servers, and their hottest rows at the trainers (RecShard, ASPLOS 2022)."""

    fast_gb: float = 0.0
    """GB (10**9 bytes) of rows that may stay with the trainers: with each one, or with all of them together where rows
    have one home. Each server's tables get the same part of it."""
    fast_gb_s: float = 100.0
    """GB a second at which rows that stay with the trainers are read; `slow_gb_s` or more."""
    slow_gb_s: float = 1.0
    """GB a second at which a server's other rows are read."""
    steps: int = 100
    """Number of steps in which the share of a table's accesses that stays with the trainers is chosen: a divisor of
    100."""
    weigh: str = "accesses"
    """What tables are weighed by: `accesses` of a batch, `coverage` alone, or `pooling` alone, as the paper's ablations
    do."""
    time_limit_s: float = 60.0
    """Seconds of search; 0 leaves out the exact search, which needs SciPy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.fast_gb < float("inf"):
            raise SettingError("fast_gb", self.fast_gb, "use a number of GB, or 0 for none")
        for name in ("fast_gb_s", "slow_gb_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SettingError(name, getattr(self, name), "use a number of GB a second above 0")
        if self.fast_gb_s < self.slow_gb_s:
            cure = f"use {self.slow_gb_s} (slow_gb_s) or more: no row would be worth its place in slower memory"
            raise SettingError("fast_gb_s", self.fast_gb_s, cure)
        if self.steps < 1 or 100 % self.steps:
            raise SettingError("steps", self.steps, "use a divisor of 100, such as 4, 20 or 100")
        if self.weigh not in WEIGHTS:
            raise SettingError("weigh", self.weigh, f"use one of {', '.join(WEIGHTS)}")
        if not 0 <= self.time_limit_s < float("inf"):
            raise SettingError("time_limit_s", self.time_limit_s, "use a number of seconds, or 0 for no exact search")


@dataclass(frozen=True)
class FlexShardSettings(PlannedSettings):
    """Whole tables on servers, and rows with every trainer where that saves traffic (FlexShard, 2023)."""

    trainers: int = 2
    """Trainers of the run that the plan is for."""
    trainer_hosts: int = 1
    """Number of hosts that these trainers are on, each with the same number of them."""
    within_gb_s: float = 10.0
    """GB (10**9 bytes) a second of a trainer's link to others of its host."""
    between_gb_s: float = 1.0
    """GB a second of its link to those of other hosts."""
    fast_gb: float = 0.0
    """GB of rows that may stay with each trainer."""
    once_a_host: bool = False
    """Whether rows may also stay with one trainer of each host; runs then need `cache.sharing = "tiered"`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trainers < 1:
            raise SettingError("trainers", self.trainers, "use 1 or more")
        if self.trainer_hosts < 1 or self.trainers % self.trainer_hosts:
            raise SettingError("trainer_hosts", self.trainer_hosts, f"use a divisor of trainers = {self.trainers}")
        for name in ("within_gb_s", "between_gb_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SettingError(name, getattr(self, name), "use a number of GB a second above 0")
        if self.within_gb_s < self.between_gb_s:
            cure = f"use {self.between_gb_s} or more: links within hosts must be as fast as those between them"
            raise SettingError("within_gb_s", self.within_gb_s, cure)
        if not 0 <= self.fast_gb < float("inf"):
            raise SettingError("fast_gb", self.fast_gb, "use a number of GB, or 0 for none")


@dataclass(frozen=True)
class LearnedSettings(PlannedSettings):
    """Whole tables on servers by a method that learns from measured groups of tables (AutoShard, DreamShard)."""

    rounds: int = 0
    """Steps of AutoShard's learner, or rounds of DreamShard's; 0 for its default, 40 or 10."""
    measured_gb: float = 2.0
    """Memory in GB for the tables that are measured; if they are larger, each is measured with fewer rows in
    proportion."""
    placement_seed: int = 1
    """Seed of all random choices."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds < 0:
            raise SettingError("rounds", self.rounds, "use 1 or more, or 0 for as many as are usual")
        if not 0 < self.measured_gb < float("inf"):
            raise SettingError("measured_gb", self.measured_gb, "use a number of GB above 0")
        if self.placement_seed < 0:
            raise SettingError("placement_seed", self.placement_seed, "use 0 or more")
