"""The steps of a run in their order: give roles, agree on what to do, start a role on each rank, end all if one fails.

A role's module is imported on its own ranks only: torch costs a second and 200 MB, which oracle and servers do without.
"""

import logging
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from bagpipe_hpc.cluster.allocator import keep_all_freed_memory
from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.cluster.role_placement import Placement
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import BagpipeError, ConfigError, DivergenceError
from bagpipe_hpc.kernels.block_file import block_files
from bagpipe_hpc.kernels.row_copies import row_copies
from bagpipe_hpc.mpi.communicators import ORACLE_RANK, Communicators
from bagpipe_hpc.mpi.heartbeat import HeartbeatCounter, HeartbeatMonitor, HeartbeatSender
from bagpipe_hpc.mpi.rows.window import RowWindow
from bagpipe_hpc.mpi.start.places import find_places
from bagpipe_hpc.mpi.start.world import abort_job, world_rank, world_size
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.mpi.waiting import serve_until_barrier, wait_for_barrier
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.preparation.agreement import NothingLeftError, RefusalError, agree, agree_on_memory, from_oracle
from bagpipe_hpc.preparation.caches import settle_reserved, settle_sharing
from bagpipe_hpc.preparation.prepare import require_weights_alone
from bagpipe_hpc.preparation.rank_check import (
    check_placement,
    check_run,
    check_settings,
    check_start,
    facts_of_entries,
    memory_need,
    placement_marks,
    require_same_entries,
    row_routes,
)
from bagpipe_hpc.preparation.resume import verify_share
from bagpipe_hpc.preparation.saved_plans import find_need
from bagpipe_hpc.preparation.training import Training
from bagpipe_hpc.preparation.transfers import settle_transfers
from bagpipe_hpc.rows.disk.block_file import disk_unit
from bagpipe_hpc.rows.disk.store import DiskStore
from bagpipe_hpc.run.output_folder import LOGS_NAME, RESOURCES_NAME
from bagpipe_hpc.run.purpose import Purpose
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.run.stop_request import NeverStopped, StopRequest
from bagpipe_hpc.step.dense_sums_choice import choose_dense_sums
from bagpipe_hpc.step.linear_choice import LinearWish, Offer, choose_linear
from bagpipe_hpc.telemetry.resource_use import save_resources
from bagpipe_hpc.telemetry.run_log import Voice, log_to_file, log_to_terminal, note_failure
from bagpipe_hpc.telemetry.status import telling_status
from bagpipe_hpc.telemetry.trace import Trace, save_trace
from bagpipe_hpc.terminal import printable

if TYPE_CHECKING:
    from bagpipe_hpc.step.slice_step import Loop

log = logging.getLogger(__name__)

EXIT_OK = 0
EXIT_FAILED = 1
"""A rank failed; the job was aborted."""
EXIT_REFUSED = 2
"""The run cannot start; every rank knows why, and the launcher's first one has said it."""
EXIT_INTERRUPTED = 130
"""As a shell reports Ctrl-C."""

_IMPORT_S = 120.0
"""What importing torch may take trainers on a busy host or from a cold file system, beyond the limit of other waits."""


def train(config: Config, loop: "Loop | None" = None, voice: Voice = Voice.USUAL) -> int:
    """Train as configured: on one rank the reference, on three or more the roles.

    Args:
        config: of the run.
        loop: what trains a slice, on the ranks that compute; by default the cross-entropy of clicks.
        voice: how much of the log goes to stderr.

    Returns:
        The exit code of this rank. Where a rank fails, the call does not return: the job is aborted.

    Raises:
        BagpipeError: the reference cannot run. Other runs that cannot start are reported by the first rank.
    """
    return carry_out(Training(config, voice), loop)


def carry_out(purpose: Purpose, loop: "Loop | None" = None) -> int:
    """Do what a run is for: on one rank as the reference, on three or more by the roles.

    Arguments, exit code and errors as for `train`.
    """
    keep_all_freed_memory()
    if world_size() == 1:
        try:
            run_alone(purpose, loop)
        except DivergenceError as error:
            message = f"bagpipe: failed: {error}\n"
            note_failure(message)
            print(printable(message), end="", file=sys.stderr, flush=True)
            return EXIT_FAILED
        return EXIT_OK
    try:
        run_role(purpose, loop)
    except NothingLeftError as done:
        if world_rank() == 0:
            print(f"bagpipe: {printable(str(done))}", file=sys.stderr, flush=True)
    except RefusalError as refusal:
        if world_rank() == 0:
            print(f"bagpipe: error: {printable(str(refusal))}", file=sys.stderr, flush=True)
        return EXIT_REFUSED
    return EXIT_OK


def train_reference(config: Config, loop: "Loop | None" = None) -> None:
    """Train in this one process; arguments as for `train`."""
    run_alone(Training(config), loop)


def run_alone(purpose: Purpose, loop: "Loop | None" = None) -> None:
    """Do what a run is for in this one process; arguments as for `carry_out`."""
    from bagpipe_hpc.preparation.compute_check import (
        check_model,
        check_reference_settings,
        require_reference_memory,
    )
    from bagpipe_hpc.roles.reference import Reference
    from bagpipe_hpc.step.slice_step import click_training

    log_to_terminal("reference", speaks=True, voice=purpose.voice)
    purpose.check()
    device = check_reference_settings(purpose.config)
    run, what = purpose.lay_out(trainers=0)
    if what:
        log.info(what)
        return
    if not run.is_in_memory(servers=1):
        log.warning("tables.memory_gb is for servers: a run of one rank holds all rows in memory")
    if purpose.config.train.prometheus:
        log.warning("train.prometheus is for several ranks: a run of one tells nothing there")
    require_reference_memory(run, device)
    check_model(run)
    require_weights_alone(run.config)
    if run.read_first:
        verify_share(run.read_first, 0, 1)
    with purpose.hold(_lose_output):
        reference = Reference(purpose, run, device)
        purpose.start(reference.settled)
        if purpose.folder:
            log_to_file(purpose.folder / LOGS_NAME / "reference.log")
        reference.run(loop or click_training)
        if purpose.conclude:
            purpose.conclude()


def run_role(purpose: Purpose, loop: "Loop | None" = None) -> None:
    """Split the ranks and run this one's role to its end. Collective over: all ranks.

    Raises:
        RefusalError: on every rank, before any has started to train.
    """
    name, config = f"rank {world_rank()} of {world_size()}", purpose.config
    try:
        places, hosts = find_places(config.train.timeout_s, use_gpus=config.train.device != "cpu")
        try:
            placement = Placement.choose(places, config.roles.servers, config.roles.placement)
            comms = Communicators.create(placement, config.train.timeout_s)
        except ConfigError as error:  # it depends on nothing but what every rank has
            raise RefusalError(str(error)) from error
        name = comms.name
        with comms, ExitStack() as held:
            speaks = comms.role_rank == 0 and comms.role is not Role.SERVER
            log_to_terminal(name, speaks=speaks, voice=purpose.voice)
            if comms.role is Role.ORACLE:
                for line in placement.describe(hosts):
                    log.info(line)
            if config.train.preflight:
                _preflight(config, comms, purpose.folder or Path())
            stop = purpose.stop_request(listens=comms.role is Role.ORACLE)
            held.enter_context(stop)
            run, need = _prepare(purpose, comms, held)
            if purpose.folder:
                log_to_file(purpose.folder / LOGS_NAME / f"{comms.role.value}-{comms.role_rank}.log")
            run = _settle_dense_sums(_settle_linear(run, comms), comms)
            if comms.role is Role.ORACLE:
                purpose.settled(run)
            _run_prepared(purpose, run, need, comms, stop, loop)
            if purpose.conclude:
                from_oracle(comms, purpose.conclude, config.train.timeout_s)
    except RefusalError:
        raise
    except KeyboardInterrupt:
        abort_job(
            f"bagpipe: {name}: interrupted; train.resume=auto goes on from the newest checkpoint", EXIT_INTERRUPTED
        )
    except BaseException as error:  # noqa: BLE001 - whatever it is, the other ranks would wait for this one for ever
        message = f"bagpipe: {name} failed: {error if isinstance(error, BagpipeError) else repr(error)}\n"
        if not isinstance(error, BagpipeError):
            message += "".join(traceback.format_exception(error))
        note_failure(message)
        abort_job(message, EXIT_FAILED)


def _preflight(config: Config, comms: Communicators, output: Path) -> None:
    """Examine the set-up, a line a check in the oracle's log. Collective over: all ranks.

    Raises:
        RefusalError: on every rank: a run would fail here.
    """
    from bagpipe_hpc.tools.doctor import require_healthy

    is_trainer = comms.role is Role.TRAINER
    try:
        checks = require_healthy(output, config.train.timeout_s, look_for_gpus=is_trainer)
    except ConfigError as error:
        raise RefusalError(str(error)) from error
    if comms.role is Role.ORACLE:
        for line in checks:
            log.info("preflight: %s", line)


def _prepare(purpose: Purpose, comms: Communicators, held: ExitStack) -> tuple[Run, CacheNeed]:
    """Check and decide step by step, what costs little first; then make the output folder. Collective over: all ranks.

    Args:
        purpose: of the run.
        comms: this rank's communicators.
        held: gives back, at the end of the run, what the oracle takes here: the lock of the output folder.

    Raises:
        RefusalError: on every rank; an earlier run in the output folder is as it was.
    """

    def start() -> None:
        held.enter_context(purpose.hold(_lose_output))
        purpose.start(run)

    config = purpose.config
    timeout_s = config.train.timeout_s
    agree(comms, lambda: check_settings(config, comms, purpose.check), timeout_s + _IMPORT_S)
    facts = from_oracle(comms, lambda: facts_of_entries(config), timeout_s)
    agree(comms, lambda: require_same_entries(config, facts), timeout_s)
    run, what = from_oracle(comms, lambda: purpose.lay_out(comms.layout.trainers), timeout_s)
    if what:
        raise NothingLeftError(what)
    run = settle_sharing(run, comms)
    agree_on_memory(comms, agree(comms, lambda: check_run(run, comms), timeout_s), timeout_s)
    marks = from_oracle(comms, lambda: placement_marks(run, comms), timeout_s)
    agree(comms, lambda: check_placement(run, marks, comms), timeout_s)
    agree(comms, lambda: check_start(run, comms), run.fill_timeout_s(comms.layout.servers))
    need = settle_reserved(run, from_oracle(comms, lambda: find_need(run, comms.layout.trainers), timeout_s), comms)
    agree_on_memory(comms, agree(comms, lambda: memory_need(run, need, comms), timeout_s), timeout_s)
    from_oracle(comms, start, timeout_s)
    return run, need


def _settle_linear(run: Run, comms: Communicators) -> Run:
    """All trainers use the linear layers that the oracle chooses from what they offer. Collective over: all ranks."""
    offer: Offer | None = None
    if comms.role is Role.TRAINER:
        from bagpipe_hpc.roles.trainer import offer_linear_layers

        offer = offer_linear_layers(run, comms)
    timeout_s = run.config.train.timeout_s
    comms.meet("having timed its linear layers", timeout_s)
    with TimeLimit("all ranks to agree on linear layers", timeout_s):
        offers = comms.world.gather(offer, root=ORACLE_RANK)
        linear = None
        if offers is not None:
            offered = next(found for found in offers if found is not None)
            choice = choose_linear(LinearWish.of(run.config, run.start), offered)
            log.info("%s", choice)
            linear = choice.implementation
        linear = comms.world.bcast(linear, root=ORACLE_RANK)
    return run.with_linear(linear)


def _settle_dense_sums(run: Run, comms: Communicators) -> Run:
    """All trainers sum dense gradients in one way, by the cores that they have. Collective over: all ranks."""
    own = None
    if comms.role is Role.TRAINER:
        from bagpipe_hpc.roles.trainer import trainer_cores

        own = trainer_cores(run, comms)
    with TimeLimit("all ranks to agree on sums of dense gradients", run.config.train.timeout_s):
        trainers = [found for found in comms.world.allgather(own) if found is not None]
    choice = choose_dense_sums(run.config.train.dense_sums, trainers)
    if comms.role is Role.ORACLE:
        log.info("%s", choice)
    return run.with_dense_sums(choice.name)


def _lose_output(why: str) -> None:
    """Another run has the output folder or may take it: end this one before both write to it."""
    message = f"bagpipe: {why}: ending, so that no two runs write to one folder"
    note_failure(message)
    abort_job(message, EXIT_FAILED)


@contextmanager
def _open_stores(run: Run, comms: Communicators) -> Iterator[list[DiskStore | None]]:
    """Files for the rows of each group of tables, on servers whose memory does not hold them; else None for each."""
    servers, tables = comms.layout.servers, run.config.tables
    if comms.role is not Role.SERVER or run.is_in_memory(servers):
        yield [None for _ in run.groups]
        return
    open_file = block_files(run.config.kernels.backend)
    may_be_memory = run.config.debug.ssd_path_in_memory
    unit_bytes = disk_unit(tables.ssd_path, may_be_memory=may_be_memory)
    parts = zip(run.groups, run.partitions(servers), run.disk_memory(servers, comms.role_rank, unit_bytes), strict=True)
    stores = []
    for group, partition, memory_bytes in parts:
        rows, width = partition.rows_on(comms.role_rank), group.record.width
        stores.append(DiskStore(rows, width, memory_bytes, tables.ssd_path, open_file, may_be_memory=may_be_memory))
    yield list(stores)
    for store in stores:  # not after an error, which ends this process: a thread may be reading them for a checkpoint
        store.close()


def _say_where_rows_are(run: Run, comms: Communicators, stores: Sequence[DiskStore | None], timeout_s: float) -> None:
    """Let the oracle's log say what lies on disk, where rows do. Collective over: all ranks."""
    if run.is_in_memory(comms.layout.servers):
        return
    held = [(store.layout.bytes_with(store.frames), store.layout.file_bytes) for store in stores if store]
    with TimeLimit("all servers to open their files", timeout_s):
        of_ranks = comms.world.gather(held, root=ORACLE_RANK)
    if of_ranks is not None:
        memory_bytes, file_bytes = (sum(sizes) for sizes in zip(*chain(*of_ranks), strict=True))
        log.info(
            "rows are on disk: %.1f MB in files without a name in %s, %.1f MB of memory for those in use, on %d "
            "servers%s",
            file_bytes / 1e6,
            run.config.tables.ssd_path,
            memory_bytes / 1e6,
            comms.layout.servers,
            "; debug.ssd_path_in_memory: those files may take memory, too"
            if run.config.debug.ssd_path_in_memory
            else "",
        )


@contextmanager
def _open_windows(
    run: Run, need: CacheNeed, comms: Communicators, stores: Sequence[DiskStore | None], timeout_s: float
) -> Iterator[list[RowWindow]]:
    """The ways to the rows of each group of tables. Collective over: all ranks."""
    copies = None if comms.role is Role.ORACLE else row_copies(run.config.kernels.backend)
    routes = row_routes(run, comms)
    ways = settle_transfers(run, need, comms, routes, copies)
    with ExitStack() as opened:
        windows = []
        partitions = run.partitions(comms.layout.servers)
        for group, partition, store, transfers in zip(run.groups, partitions, stores, ways, strict=True):
            width = group.record.width
            window = RowWindow(
                *(comms.world, routes, partition, width, timeout_s, transfers, copies, store),
                reads_ahead=run.config.tables.read_ahead,
            )
            windows.append(opened.enter_context(window))
        if comms.role is Role.TRAINER:
            log.info(windows[0].ways)
        yield windows


def _run_prepared(
    purpose: Purpose,
    run: Run,
    need: CacheNeed,
    comms: Communicators,
    stop: StopRequest | NeverStopped,
    loop: "Loop | None",
) -> None:
    """Open the windows on the rows and run the role. Collective over: all ranks."""
    trace = Trace(enabled=bool(run.config.train.trace))
    fill_timeout_s = run.fill_timeout_s(comms.layout.servers)
    timeout_s = run.config.train.timeout_s
    comms.meet("being about to start its role", timeout_s)
    with (
        telling_status(purpose.folder, run.config.train, comms, trace),
        HeartbeatCounter(comms.world, comms.hosts, timeout_s) as counter,
        _open_stores(run, comms) as stores,
        _open_windows(run, need, comms, stores, fill_timeout_s) as windows,
    ):
        _say_where_rows_are(run, comms, stores, fill_timeout_s)
        if trace.enabled:
            comms.meet("having opened the tables", fill_timeout_s)
            trace.start()
        if comms.role is Role.ORACLE:
            _run_oracle(run, need, comms, fill_timeout_s, trace, stop, counter)
        elif comms.role is Role.SERVER:
            _run_server(run, comms, windows, stores, fill_timeout_s, trace, counter)
        else:
            _run_trainer(purpose, run, need, comms, windows, fill_timeout_s, trace, loop)
        comms.meet("having finished", timeout_s)
        if purpose.folder:
            save_resources(purpose.folder / RESOURCES_NAME, comms, trace.sums_s())
        if trace.enabled:
            save_trace(Path(run.config.train.trace), comms, trace)


def _run_oracle(
    run: Run,
    need: CacheNeed,
    comms: Communicators,
    fill_timeout_s: float,
    trace: Trace,
    stop: StopRequest | NeverStopped,
    counter: HeartbeatCounter,
) -> None:
    """Plan, and show the servers meanwhile that the run goes on: nobody may ask them for hours."""
    from bagpipe_hpc.roles.oracle import run_oracle

    servers = [comms.layout.world_rank(Role.SERVER, server) for server in range(comms.layout.servers)]
    with HeartbeatSender(comms.world, servers, run.config.train.timeout_s, counter) as heartbeats:
        run_oracle(run, need, comms, fill_timeout_s, trace, stop)
        _wait_for_all(comms, fill_timeout_s)
    heartbeats.send_last()


def _run_server(
    run: Run,
    comms: Communicators,
    windows: list[RowWindow],
    stores: list[DiskStore | None],
    fill_timeout_s: float,
    trace: Trace,
    counter: HeartbeatCounter,
) -> None:
    """Serve until all ranks have finished."""
    from bagpipe_hpc.roles.embedding_server import answer_trainers, longest_sleep_s, run_embedding_server

    oracle = HeartbeatMonitor(comms.world, ORACLE_RANK, "the oracle", run.config.train.timeout_s, counter)
    run_embedding_server(run, comms, windows, stores, fill_timeout_s, trace, oracle.check)
    serve_until_barrier(comms.world, partial(answer_trainers, windows), longest_sleep_s(run, windows), oracle.check)
    oracle.finish()


def _run_trainer(
    purpose: Purpose,
    run: Run,
    need: CacheNeed,
    comms: Communicators,
    windows: list[RowWindow],
    fill_timeout_s: float,
    trace: Trace,
    loop: "Loop | None",
) -> None:
    """Train; torch is imported here, on the trainers' ranks only."""
    from bagpipe_hpc.roles.trainer import run_trainer
    from bagpipe_hpc.step.slice_step import click_training

    run_trainer(purpose, run, need, comms, windows, fill_timeout_s, trace, loop or click_training)
    _wait_for_all(comms, fill_timeout_s)


def _wait_for_all(comms: Communicators, timeout_s: float) -> None:
    wait_for_barrier(comms.world, "all ranks to finish", timeout_s)
