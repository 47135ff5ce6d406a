"""Where embedding rows are, and when they move: the window, the caches, the policy, the tables at the servers."""

from dataclasses import dataclass, field
from typing import Any

from bagpipe_hpc.config.checks import require, require_one_of
from bagpipe_hpc.config.doors import DOOR, PLACEMENTS, POLICIES, fill_settings
from bagpipe_hpc.config.float32 import require_positive

MEASURES = ("beginning", "all")
SHARINGS = ("replicated", "home")
"""Ways for any rows; `tiered` goes with a plan that says where each row is."""
EXCHANGES = ("auto", "direct", "grid")
_MOST_MEMORY_GB = 1_000_000


@dataclass(frozen=True)
class LookaheadConfig:
    """The oracle's window (BagPipe, SOSP 2023, section 3)."""

    batches: int = 40
    """Window L in batches, the current one included; 1 switches look-ahead and caching off."""
    group: int = 0
    """Batches C whose retired rows are written back together; 0 chooses max(1, batches // 4)."""

    def __post_init__(self) -> None:
        require(self.batches >= 1, "lookahead.batches", self.batches, "use 1 or more batches")
        require(self.group >= 0, "lookahead.group", self.group, "use 1 or more batches, or 0 for batches // 4")
        if self.batches > 1:
            require(
                self.group < self.batches,
                "lookahead.group",
                self.group,
                f"use at most lookahead.batches - 1 = {self.batches - 1}, else training would wait for itself",
            )

    @property
    def group_batches(self) -> int:
        """The clean-up interval C that is used: `group`, or a quarter of the window (BagPipe's default)."""
        if self.batches == 1:
            return 1
        return self.group or max(1, self.batches // 4)


@dataclass(frozen=True)
class CacheConfig:
    """The row cache of each trainer."""

    rows: int = 0
    """The most rows that a trainer's cache may hold: a window that needs more is shortened; 0 takes what is needed."""
    measure: str = "beginning"
    """What the number of rows that a window needs is taken from: the run's `beginning`, with some to spare, so that
    training begins at once; or `all` its batches, read once before the first step, which is exact."""
    sharing: str = "auto"
    """Where rows live that several trainers use: `replicated`, at all of them, which sum and update alike; `home`, at
    one, to which the others send gradients, and which sends them copies; `tiered`, some at all, some at one of each
    host, the others at one, as the plan of `policy.plan` says; `auto`, which is `home` if there are two trainers or
    more, on CPUs, and the policy has plans for it, otherwise `replicated`."""
    exchange: str = "auto"
    """How rows with one home travel between trainers: `direct`, with a message to each other trainer; over a `grid` of
    R x C trainers in two hops, with R + C - 2 messages and all rows twice; `auto` takes the grid with many trainers."""

    def __post_init__(self) -> None:
        require(self.rows >= 0, "cache.rows", self.rows, "use 1 or more rows, or 0 for what the window needs")
        require_one_of("cache.measure", self.measure, MEASURES)
        ways = ("auto", *SHARINGS, "tiered")
        require_one_of("cache.sharing", self.sharing, ways)
        require_one_of("cache.exchange", self.exchange, EXCHANGES)


@dataclass(frozen=True)
class PolicyConfig:
    """What decides which rows are fetched, kept, summed and written back, and which trainer gets which sample."""

    name: str = "bagpipe"
    """Which policy: `bagpipe` keeps a row as long as a batch of the window uses it (`lookahead`, `cache`); `none` keeps
    none; the others are those of docs/policies.md; `package.module:Class` is one of your own (docs/extending.md)."""
    settings: Any = field(default=None, metadata={DOOR: POLICIES})
    """The policy's own settings."""

    def __post_init__(self) -> None:
        fill_settings(self)


@dataclass(frozen=True)
class TablesConfig:
    """The embedding tables at the servers."""

    placement: str = "round_robin"
    """Which server holds which rows: `round_robin` deals out single rows, `contiguous` cuts all rows into equal ranges,
    `by_table` gives whole tables to servers, largest first; docs/placements.md has further ones for whole tables;
    `package.module:Class` is one of your own (docs/extending.md). Results do not depend on it."""
    settings: Any = field(default=None, metadata={DOOR: PLACEMENTS})
    """The placement's own settings."""
    initial_bound: float = 0.0
    """Initial weights of rows are uniform between minus this bound and this bound; 0 takes the model's bound
    (`wide_deep` and `deepfm`: 0.001) if it has one, or else 1/sqrt(n) for a table of n rows, as the published DLRM
    does."""
    frozen: tuple[str, ...] = ()
    """Tables whose rows training leaves as they are, by name; `*` stands for any characters. Neither their weights nor
    their optimizer state change, whatever the optimizer would do without a gradient."""
    memory_gb: float = 0.0
    """The most memory that each server takes for its rows, in GB (10**9 bytes): what does not fit lies in a file in
    `ssd_path` (docs/ssd.md). With 0, or with as much as the rows take, all rows are in memory."""
    ssd_path: str = ""
    """Existing folder on a local disk of each server's host, for rows that `memory_gb` does not hold. The file has no
    name, and is gone when the server ends."""
    read_ahead: bool = True
    """Servers whose rows lie on disk prefetch what plans will ask for; false is for measurements."""

    def __post_init__(self) -> None:
        fill_settings(self)
        if self.initial_bound:
            require_positive("tables.initial_bound", self.initial_bound, "0 for that of the model, or ")
        cure = f"use a number of GB of memory for each server, {_MOST_MEMORY_GB} at most, or 0 for all rows"
        require(0 <= self.memory_gb <= _MOST_MEMORY_GB, "tables.memory_gb", self.memory_gb, cure)
