"""The steps of a run in their order: give roles, agree on what to do, run this rank's role, end all if one fails."""

import logging
import sys
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bagpipe_hpc.cluster.allocator import keep_all_freed_memory
from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.cluster.role_placement import Placement
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import BagpipeError, ConfigError, DivergenceError, met_limit
from bagpipe_hpc.exit_codes import EXIT_ERROR, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.start.places import find_places
from bagpipe_hpc.mpi.start.world import abort_job, world_rank, world_size
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.preparation.agreement import NothingLeftError, RefusalError, agree, agree_on_memory, from_oracle
from bagpipe_hpc.preparation.prepare import require_weights_alone
from bagpipe_hpc.preparation.rank_check import (
    check_order,
    check_placement,
    check_run,
    check_same_models,
    check_settings,
    check_start,
    facts_of_entries,
    memory_need,
    order_mark,
    placement_marks,
    require_same_entries,
)
from bagpipe_hpc.preparation.resume import verify_share
from bagpipe_hpc.preparation.saved_plans import find_need
from bagpipe_hpc.preparation.settling.caches import settle_reserved, settle_sharing
from bagpipe_hpc.preparation.settling.dense_sums import settle_dense_sums
from bagpipe_hpc.preparation.settling.device import settle_device
from bagpipe_hpc.preparation.settling.linear_layers import settle_linear
from bagpipe_hpc.preparation.training import Training
from bagpipe_hpc.roles.start import run_prepared
from bagpipe_hpc.run.output.folder import LOGS_NAME
from bagpipe_hpc.run.purpose import Purpose
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.telemetry.run_log import Voice, log_to_file, log_to_terminal, note_failure
from bagpipe_hpc.terminal import printable

if TYPE_CHECKING:
    from bagpipe_hpc.step.slice_step import Loop

log = logging.getLogger(__name__)

_IMPORT_S = 120.0
"""What importing torch may take trainers on a busy host or from a cold file system, beyond the limit of other waits."""


def train(config: Config, loop: "Loop | None" = None, voice: Voice = Voice.USUAL, *, comes_again: bool = False) -> int:
    """Train as configured: on one rank the reference, on three or more the roles.

    Args:
        config: of the run.
        loop: what trains a slice, on the ranks that compute; by default the cross-entropy of clicks.
        voice: how much of the log goes to stderr.
        comes_again: whether this is a later start of a Slurm job, which goes on from what an earlier one has saved.

    Returns:
        The exit code of this rank. Where a rank fails, the call does not return: the job is aborted.

    Raises:
        BagpipeError: the reference cannot run. Other runs that cannot start are reported by the first rank.
    """
    return carry_out(Training(config, voice, comes_again=comes_again), loop)


def carry_out(purpose: Purpose, loop: "Loop | None" = None) -> int:
    """Do what a run is for: on one rank as the reference, on three or more by the roles.

    Arguments, exit code and errors as for `train`.
    """
    keep_all_freed_memory()
    if world_size() == 1:
        try:
            run_alone(purpose, loop)
        except DivergenceError as error:
            print(printable(_failure(error)), end="", file=sys.stderr, flush=True)
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
        return EXIT_ERROR
    return EXIT_OK


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
    if purpose.config.train.preflight:
        _preflight(purpose.config, purpose.folder, look_for_gpus=True, speaks=True)
    purpose.check()
    device = check_reference_settings(purpose.config)
    run, nothing_left = purpose.lay_out(trainers=0)
    if nothing_left:
        log.info(nothing_left)
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
        try:
            reference.run(loop or click_training)
            if purpose.conclude:
                purpose.conclude()
        except KeyboardInterrupt:
            note_failure(_interruption(purpose))
            raise
        except Exception as error:
            note_failure(_failure(error))
            raise


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
            comms = Communicators.create(placement, config.train.timeout_s, config.cache.exchange)
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
                _preflight_together(config, comms, purpose.folder)
            stop = purpose.stop_request(listens=comms.role is Role.ORACLE)
            held.enter_context(stop)
            run, need = _prepare(purpose, comms, held)
            if purpose.folder:
                log_to_file(purpose.folder / LOGS_NAME / f"{comms.role.value}-{comms.role_rank}.log")
            run = settle_dense_sums(settle_linear(run, comms), comms)
            if comms.role is Role.ORACLE:
                purpose.settled(run)
            run_prepared(purpose, run, need, comms, stop, loop)
            if purpose.conclude:
                from_oracle(comms, purpose.conclude, config.train.timeout_s)
    except RefusalError:
        raise
    except KeyboardInterrupt:
        message = _interruption(purpose, f"{name}: ")
        note_failure(message)
        abort_job(message, EXIT_INTERRUPTED)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the other ranks would wait for this one for ever
        message = _failure(error, f"{name} ")
        note_failure(message)
        abort_job(message, EXIT_FAILED)


def _interruption(purpose: Purpose, who: str = "") -> str:
    how = "; train.resume=auto goes on from the newest checkpoint" if purpose.can_go_on else ""
    return f"bagpipe: {who}interrupted{how}"


def _failure(error: BaseException, who: str = "") -> str:
    """Why a rank ends; of an error that is none of the program's kinds, nor of a limit, with the traceback."""
    error = met_limit(error) or error
    if isinstance(error, BagpipeError):
        return f"bagpipe: {who}failed: {error}\n"
    return f"bagpipe: {who}failed: {error!r}\n{''.join(traceback.format_exception(error))}"


def _preflight_together(config: Config, comms: Communicators, output: Path | None) -> None:
    """Examine the set-up, a line a check in the oracle's log. Collective over: all ranks.

    Raises:
        RefusalError: on every rank: a run would fail here.
    """
    is_trainer, is_oracle = comms.role is Role.TRAINER, comms.role is Role.ORACLE
    try:
        _preflight(config, output, look_for_gpus=is_trainer, speaks=is_oracle)
    except ConfigError as error:
        raise RefusalError(str(error)) from error


def _preflight(config: Config, output: Path | None, *, look_for_gpus: bool, speaks: bool) -> None:
    """Examine the set-up. Collective over: all ranks.

    Args:
        config: of the run.
        output: folder that all ranks have to share, if any.
        look_for_gpus: whether this rank computes.
        speaks: whether it says what was found, a line a check.

    Raises:
        ConfigError: on every rank: a run would fail here.
    """
    from bagpipe_hpc.tools.doctor.doctor import require_healthy

    checks = require_healthy(output, config.train.timeout_s, look_for_gpus=look_for_gpus)
    for line in checks if speaks else ():
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

    purpose.config = config = settle_device(purpose.config, comms, _IMPORT_S)
    timeout_s = config.train.timeout_s
    agree(comms, lambda: check_settings(config, comms, purpose.check), timeout_s + _IMPORT_S)
    facts = from_oracle(comms, lambda: facts_of_entries(config), timeout_s)
    agree(comms, lambda: require_same_entries(config, facts), timeout_s)
    run, nothing_left = from_oracle(comms, lambda: purpose.lay_out(comms.layout.trainers), timeout_s)
    if nothing_left:
        raise NothingLeftError(nothing_left)
    run = settle_sharing(run, comms)
    agree_on_memory(comms, agree(comms, lambda: check_run(run, comms), timeout_s), timeout_s)
    marks = from_oracle(comms, lambda: placement_marks(run, comms), timeout_s)
    agree(comms, lambda: check_placement(run, marks, comms), timeout_s)
    mark = from_oracle(comms, lambda: order_mark(run), timeout_s)
    agree(comms, lambda: check_order(run, mark, comms), timeout_s)
    logits = agree(comms, lambda: check_start(run, comms), run.fill_timeout_s(comms.layout.servers))
    agree(comms, lambda: check_same_models(run, logits, comms), timeout_s)
    need = settle_reserved(run, from_oracle(comms, lambda: find_need(run, comms.layout.trainers), timeout_s), comms)
    agree_on_memory(comms, agree(comms, lambda: memory_need(run, need, comms), timeout_s), timeout_s)
    from_oracle(comms, start, timeout_s)
    return run, need


def _lose_output(why: str) -> None:
    """Another run has the output folder or may take it: end this one before both write to it."""
    message = f"bagpipe: {why}: ending, so that no two runs write to one folder"
    note_failure(message)
    abort_job(message, EXIT_FAILED)
