"""Settles what sums dense gradients over the trainers."""

import logging

from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.step.dense.sums_choice import choose_dense_sums

log = logging.getLogger(__name__)


def settle_dense_sums(run: Run, comms: Communicators) -> Run:
    """All trainers sum dense gradients in one way, by the cores that they have. Collective over: all ranks."""
    own = None
    if comms.role is Role.TRAINER:
        from bagpipe_hpc.preparation.settling.trainer_compute import trainer_cores  # noqa: PLC0415 - torch

        own = trainer_cores(run, comms)
    with TimeLimit("all ranks to agree on sums of dense gradients", run.config.train.timeout_s):
        trainers = [found for found in comms.world.allgather(own) if found is not None]
    choice = choose_dense_sums(run.config.train.dense_sums, trainers)
    if comms.role is Role.ORACLE:
        log.info("%s", choice)
        if choice.warning:
            log.warning("%s", choice.warning)
    return run.with_dense_sums(choice.name)
