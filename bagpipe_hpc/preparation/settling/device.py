"""Settles whether trainers compute on GPUs: all of them do, or none."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.preparation.agreement import agree
from bagpipe_hpc.terminal import counted

log = logging.getLogger(__name__)


def settle_device(config: Config, comms: Communicators, import_s: float) -> Config:
    """The settings with `train.device` settled. Collective over: all ranks, which get the same answer.

    A trainer on a CPU would keep those on GPUs waiting, and a run's last bits would depend on which one that is.

    Args:
        config: of the run.
        comms: this rank's communicators.
        import_s: what importing torch may take beyond `train.timeout_s`.
    """
    if config.train.device != "auto":
        return config
    own = agree(comms, lambda: _has_gpu(comms), config.train.timeout_s + import_s)
    with TimeLimit("all ranks to say whether they have a GPU", config.train.timeout_s):
        trainers = [found for found in comms.world.allgather(own) if found is not None]
    device, reason = choose_for_all(trainers)
    if comms.role is Role.ORACLE:
        log.info("trainers compute on: %s (train.device = auto: %s)", device, reason)
    return replace(config, train=replace(config.train, device=device))


def _has_gpu(comms: Communicators) -> bool | None:
    """Whether this rank has a GPU of its own; None if it does not compute."""
    if comms.role is not Role.TRAINER:
        return None
    from bagpipe_hpc.step.compute_setup import has_gpu  # noqa: PLC0415 - torch, on trainers only

    return has_gpu(comms.gpu_number)


def choose_for_all(have_gpus: Sequence[bool]) -> tuple[str, str]:
    """What `train.device = auto` means, and why: `cuda` where every trainer has a GPU of its own, else `cpu`."""
    if all(have_gpus):
        return "cuda", "each has a GPU of its own"
    if not any(have_gpus):
        return "cpu", "torch sees no GPU"
    without, trainers = len(have_gpus) - sum(have_gpus), counted(len(have_gpus), "trainer")
    return "cpu", f"{without} of {trainers} have no GPU of their own; with fewer trainers all would compute on GPUs"
