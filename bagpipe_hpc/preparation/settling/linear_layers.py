"""Settles what multiplies the matrices of linear layers: the same on all trainers."""

import logging

from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.mpi.communicators import ORACLE_RANK, Communicators
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.step.dense.linear_choice import LinearWish, Offer, choose_linear

log = logging.getLogger(__name__)


def settle_linear(run: Run, comms: Communicators) -> Run:
    """All trainers use the linear layers that the oracle chooses from what they offer. Collective over: all ranks."""
    offer: Offer | None = None
    if comms.role is Role.TRAINER:
        from bagpipe_hpc.preparation.settling.trainer_compute import offer_linear_layers  # noqa: PLC0415 - torch

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
