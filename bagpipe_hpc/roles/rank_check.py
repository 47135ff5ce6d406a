"""What can be known of a rank before it does anything: from the settings, from the data, from the plan.

Each function is called on every rank, in this order; an error of one refuses the run on all.
"""

import os

from bagpipe_hpc.config import Config
from bagpipe_hpc.core_share import require_cores
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels.row_copies import row_copies
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.row_window import require_addressable
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.role_layout import Role
from bagpipe_hpc.roles.job import Job
from bagpipe_hpc.roles.output_folder import check_writable
from bagpipe_hpc.roles.resume import verify_share
from bagpipe_hpc.row_routes import RowRoutes
from bagpipe_hpc.server_memory import Need


def check_settings(config: Config, comms: Communicators) -> None:
    """What settings and hosts alone say of this rank; trainers import torch here.

    Raises:
        BagpipeError: it could not run.
    """
    if config.train.reference_slices > 1:
        raise ConfigError(
            f"train.reference_slices = {config.train.reference_slices}: only a one-rank run sums over slices; "
            "leave it out"
        )
    RowRoutes.choose(comms.layout, comms.hosts, config.roles.same_host)
    if comms.role is Role.ORACLE:
        check_writable(config)
        require_cores({"kernels.planner_threads": config.kernels.planner_threads}, os.cpu_count() or 1)
        return
    row_copies(config.kernels.backend)
    if comms.role is Role.TRAINER:
        from bagpipe_hpc.roles.compute_check import check_compute_settings  # noqa: PLC0415 - torch, on trainers only

        check_compute_settings(config, comms.gpu_number)


def check_job(job: Job, comms: Communicators) -> Need:
    """What can be known of this rank before the run is planned.

    Returns:
        The least memory that it takes: all of a server's, a trainer's without the cache, the tables' part of a planner.

    Raises:
        BagpipeError: it could not run.
    """
    require_addressable(row_routes(job, comms), job.partition(comms.layout.servers))
    if comms.role is Role.ORACLE:
        recipe = job.planner_recipe(comms.layout.trainers)
        return Need(planner_bytes=recipe.least_bytes(job.window, job.longest_segment))
    return memory_need(job, None, comms)


def check_start(job: Job, comms: Communicators) -> None:
    """Read the checkpoint that the run goes on from: servers a share of it each, trainers its dense half.

    Raises:
        CheckpointError: it is damaged, or does not fit.
    """
    if job.start is None or comms.role is Role.ORACLE:
        return
    if comms.role is Role.SERVER:
        verify_share(job.start, comms.role_rank, comms.layout.servers, job.row_name)
        return
    from bagpipe_hpc.roles.dense_start import check_dense  # noqa: PLC0415 - torch, on trainers only

    check_dense(job)


def memory_need(job: Job, need: CacheNeed | None, comms: Communicators) -> Need:
    """Main memory that this rank is about to allocate.

    Args:
        job: the run.
        need: what the planner has found out; None before.
        comms: this rank's communicators.

    Raises:
        CapacityError: a trainer's GPU has no room for its part, or plans cannot number its slots.
    """
    if comms.role is Role.SERVER:
        return Need(tables_bytes=job.partition(comms.layout.servers).rows_on(comms.role_rank) * job.record.bytes)
    if comms.role is Role.ORACLE:
        return Need(planner_bytes=need.planner_bytes if need else 0)
    from bagpipe_hpc.roles.compute_check import trainer_need  # noqa: PLC0415 - torch, on trainers only

    return trainer_need(job, comms.layout.trainers, comms.gpu_number, need.total_rows if need else 0)


def row_routes(job: Job, comms: Communicators) -> RowRoutes:
    """The ways that rows take; raises `ConfigError` where those that are asked for do not exist."""
    return RowRoutes.choose(comms.layout, comms.hosts, job.config.roles.same_host)
