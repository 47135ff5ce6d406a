"""Starts a role on each rank, and ends the whole job when one of them fails."""

import sys
import traceback
from pathlib import Path

import torch
from mpi4py import MPI

from bagpipe_hpc.config import Config
from bagpipe_hpc.errors import BagpipeError, ConfigError
from bagpipe_hpc.models.dense_reduction import start_horovod, stop_horovod
from bagpipe_hpc.mpi.announcement import PreparationError, announce, await_announcement
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.memory_check import require_memory
from bagpipe_hpc.mpi.progress import serve_until_barrier
from bagpipe_hpc.mpi.row_window import RowWindow
from bagpipe_hpc.mpi.waiting import wait_for_barrier
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.role_layout import Role, RoleLayout
from bagpipe_hpc.roles.embedding_server import run_embedding_server
from bagpipe_hpc.roles.job import Job
from bagpipe_hpc.roles.oracle import run_oracle
from bagpipe_hpc.roles.preparation import LOGS_NAME, choose_window, prepare_job, prepare_output
from bagpipe_hpc.roles.reference import Reference
from bagpipe_hpc.roles.trainer import Trainer
from bagpipe_hpc.run_log import log_to_file, log_to_terminal

EXIT_OK = 0
EXIT_REFUSED = 2
"""The run cannot start; every rank knows, and the first one has said why."""
EXIT_FAILED = 1
"""A rank failed; the job was aborted."""


class RefusalError(Exception):
    """The run cannot start, as every rank knows: nobody has to be aborted."""


def train(config: Config) -> int:
    """Train as configured: on one rank the reference, on three or more the roles.

    Returns:
        The exit code of this rank. Where a rank fails, the call does not return: the job is aborted.
    """
    if MPI.COMM_WORLD.Get_size() == 1:
        return train_reference(config)
    try:
        run_role(config)
    except RefusalError as refusal:
        if MPI.COMM_WORLD.Get_rank() == 0:
            print(f"bagpipe: error: {refusal}", file=sys.stderr, flush=True)
        return EXIT_REFUSED
    return EXIT_OK


def train_reference(config: Config) -> int:
    """Train in this one process."""
    log_to_terminal("reference", everything=True)
    torch.set_num_threads(config.train.threads)
    job = prepare_job(config)
    prepare_output(config)
    log_to_file(Path(config.train.output) / LOGS_NAME / "reference.log")
    Reference(job).run()
    return EXIT_OK


def run_role(config: Config) -> None:
    """Split the ranks and run this one's role to its end. Collective over: all ranks.

    Raises:
        RefusalError: on every rank, before any has started to train.
    """
    name = f"rank {MPI.COMM_WORLD.Get_rank()} of {MPI.COMM_WORLD.Get_size()}"
    try:
        try:
            layout = RoleLayout.for_world(MPI.COMM_WORLD.Get_size(), config.roles.servers)
            comms = Communicators.create(layout)
        except ConfigError as error:  # it depends on nothing but what every rank has
            raise RefusalError(str(error)) from error
        name = comms.name
        with comms:
            log_to_terminal(name, everything=comms.role is Role.TRAINER and comms.role_rank == 0)
            job, need = _prepare(config, comms)
            log_to_file(Path(config.train.output) / LOGS_NAME / f"{comms.role.value}-{comms.role_rank}.log")
            _run_prepared(job, need, comms)
    except RefusalError:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it is, the other ranks would wait for this one for ever
        _abort(name, error)


def _prepare(config: Config, comms: Communicators) -> tuple[Job, CacheNeed]:
    """The oracle checks and decides, the others wait for its outcome. Collective over: all ranks."""

    def decide() -> tuple[Job, CacheNeed]:
        if config.train.reference_slices > 1:
            raise ConfigError(
                f"train.reference_slices = {config.train.reference_slices}: only a one-rank run sums over slices; "
                "leave it out"
            )
        job = prepare_job(config)
        prepare_output(config)
        return job, choose_window(job, comms.layout.trainers)

    if comms.role is not Role.ORACLE:
        try:
            job, need = await_announcement(comms.world, config.train.timeout_s)
        except PreparationError as error:
            raise RefusalError(str(error)) from error
    else:
        try:
            job, need = announce(comms.world, decide)
        except BagpipeError as error:
            raise RefusalError(str(error)) from error
    is_server = comms.role is Role.SERVER
    rows = job.partition(comms.layout.servers).rows_on(comms.role_rank) if is_server else 0
    try:
        require_memory(comms.world, rows * job.record_width * 4)
    except BagpipeError as error:
        raise RefusalError(str(error)) from error
    return job, need


def _run_prepared(job: Job, need: CacheNeed, comms: Communicators) -> None:
    """Open the window on the rows and run the role. Collective over: all ranks."""
    servers = comms.layout.servers
    fill_timeout_s = job.fill_timeout_s(servers)
    torch.set_num_threads(job.config.train.threads if comms.role is Role.TRAINER else 1)
    timeout_s = job.config.train.timeout_s
    with RowWindow(comms.world, comms.layout, job.partition(servers), job.record_width, timeout_s) as window:
        if comms.role is Role.ORACLE:
            run_oracle(job, need, comms, fill_timeout_s)
        elif comms.role is Role.SERVER:
            run_embedding_server(job, comms, window, fill_timeout_s)
            serve_until_barrier(comms.world, job.config.roles.server_poll_us * 1e-6)
        else:
            start_horovod(comms.horovod)
            Trainer(job, need, comms, window, fill_timeout_s).run()
            stop_horovod()
        if comms.role is not Role.SERVER:
            wait_for_barrier(comms.world, "all ranks to finish", fill_timeout_s)


def _abort(name: str, error: BaseException) -> None:
    """Say which rank failed and why, and end all ranks."""
    if isinstance(error, BagpipeError):
        print(f"bagpipe: {name} failed: {error}", file=sys.stderr, flush=True)
    else:
        traceback.print_exception(error)
        print(f"bagpipe: {name} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    MPI.COMM_WORLD.Abort(EXIT_FAILED)
