"""How a run is carried out, whatever it trains: the ranks' roles, native code, and checks for those who want them."""

from dataclasses import dataclass

from bagpipe_hpc.config.checks import require, require_one_of, require_threads

BACKENDS = ("auto", "native", "reference")
LINEAR_LAYERS = ("auto", "onednn", "torch")
PLANNER_STATES = ("auto", "dense", "sparse")
ROLE_PLACEMENTS = ("auto", "rank_order")
SAME_HOST_WAYS = ("auto", "loads", "transfers")
TRANSFER_WAYS = ("messages", "one_sided")
TRANSFERS = ("auto", *TRANSFER_WAYS)
MOST_TRAINERS = 32_000
"""The planner keeps the trainer that uses a row in 16 bits, with some to spare."""
_LONGEST_POLL_US = 1_000_000


@dataclass(frozen=True)
class RolesConfig:
    """How MPI ranks are split."""

    servers: int = 0
    """Number of embedding servers; one rank is the oracle, the rest train. 0: a trainer for each GPU, and the rest are
    servers; without GPUs, or with `placement = rank_order`, 2 servers among 5 ranks or more, otherwise 1."""
    placement: str = "auto"
    """Which rank takes which role: `auto` puts trainers where GPUs are, servers where memory is, the oracle apart from
    servers; on a single host it is `rank_order`: the first rank is the oracle, servers and trainers follow."""
    server_poll_us: int = 200
    """The most microseconds that an idle server sleeps between polls of MPI while trainers may ask it for rows; with 0
    it spins and needs a core of its own. Where trainers look ahead and rows in memory travel by messages, it may sleep
    for a quarter of the time since somebody last asked, up to 10 ms, if that is longer."""
    same_host: str = "auto"
    """How rows travel between a trainer and a server on its host: `auto`, through memory that both share; `transfers`,
    as between hosts; `loads` is `auto`, but refuses to run if a server is on another host."""
    transfers: str = "auto"
    """How rows travel if they do not lie in memory that both share: by `messages`, which the server answers, or by
    `one_sided` calls of MPI; `auto` tries both on the run's links before it begins, and takes the faster one."""

    def __post_init__(self) -> None:
        require_one_of("roles.transfers", self.transfers, TRANSFERS)
        require_one_of("roles.same_host", self.same_host, SAME_HOST_WAYS)
        require_one_of("roles.placement", self.placement, ROLE_PLACEMENTS)
        require(self.servers >= 0, "roles.servers", self.servers, "use 1 or more servers, or 0 for the default")
        require(
            0 <= self.server_poll_us <= _LONGEST_POLL_US,
            "roles.server_poll_us",
            self.server_poll_us,
            f"use 0 to {_LONGEST_POLL_US} microseconds: trainers wait as long for each answer",
        )


@dataclass(frozen=True)
class KernelsConfig:
    """Native code: the planner, row operations."""

    backend: str = "auto"
    """`native` (C++, CUDA), `reference` (NumPy and torch, same results), or `auto` for native where it was built."""
    linear: str = "auto"
    """What multiplies the matrices of linear layers: `onednn`, `torch` (its BLAS; the GPU's on a GPU), or `auto`: in a
    run that goes on, what its checkpoint was trained with; in others, oneDNN where it is faster by at least 5 % on the
    trainers' x86 CPUs, measured before the first step, and torch elsewhere. The run's `config.toml` says which it was.
    Without effect with `model.precision = bfloat16`, which torch multiplies. A model of your own that computes its
    layers itself takes `auto` or `torch`."""
    planner_threads: int = 0
    """Threads of the oracle's native planner, which share out the work; 0 takes one for each 200,000 look-ups of a
    batch (where rows have one home, 1 + T / 128 times as many), but no more than the cores that it may use, and 32 at
    most."""
    planner_state: str = "auto"
    """Which rows the native planner keeps a state for: `dense` all rows, `sparse` those in the window, `auto`, table by
    table, `sparse` where that cannot take more memory. Only `policy.name = bagpipe` and `none` have this planner."""
    row_threads: int = 0
    """CPU threads of a trainer's native row operations (gather, scatter, sums, updates); 0 takes `train.threads`."""

    def __post_init__(self) -> None:
        require_one_of("kernels.backend", self.backend, BACKENDS)
        require_one_of("kernels.linear", self.linear, LINEAR_LAYERS)
        require_threads("kernels.planner_threads", self.planner_threads, "those that the cores and a batch allow")
        require_one_of("kernels.planner_state", self.planner_state, PLANNER_STATES)
        require_threads("kernels.row_threads", self.row_threads, "train.threads")


@dataclass(frozen=True)
class DebugConfig:
    """For tests, and for debugging."""

    verify_rows: bool = False
    """Carry a version with every row and check each read against the plan."""
    ssd_path_in_memory: bool = False
    """Let `tables.ssd_path` lie in a memory file system such as `/dev/shm`, for tests: rows on it take memory, whatever
    `tables.memory_gb` says."""
