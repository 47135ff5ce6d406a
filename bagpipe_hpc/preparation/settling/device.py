"""Settles whether trainers compute on GPUs: all of them do, or none."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.preparation.agreement import RefusalError, agree
from bagpipe_hpc.terminal import counted

log = logging.getLogger(__name__)

_MOST_NAMED = 8
"""Trainers without a GPU whose numbers are said."""


def settle_device(config: Config, comms: Communicators, import_s: float) -> Config:
    """The settings with `train.device` settled. Collective over: all ranks, which get the same answer.

    A trainer on a CPU would keep those on GPUs waiting, and a run's last bits would depend on which one that is.

    Args:
        config: of the run.
        comms: this rank's communicators.
        import_s: what importing torch may take beyond `train.timeout_s`.

    Raises:
        RefusalError: on every rank: ranks have other values of it.
    """
    own = agree(comms, lambda: _has_gpu(comms), config.train.timeout_s + import_s)
    with TimeLimit("all ranks to say whether they have a GPU", config.train.timeout_s):
        settings, have_gpus = zip(*comms.world.allgather((config.train.device, own)), strict=True)
    if len(set(settings)) > 1:
        named = ", ".join(f"{name!r} on rank {settings.index(name)}" for name in dict.fromkeys(settings))
        raise RefusalError(f"train.device: {named}: let all ranks have the same settings")
    if config.train.device != "auto":
        return config
    trainers = [found for found in have_gpus if found is not None]
    device, reason = choose_for_all(trainers)
    if comms.role is Role.ORACLE:
        level = logging.WARNING if device == "cpu" and any(trainers) else logging.INFO
        log.log(level, "trainers compute on: %s (train.device = auto: %s)", device, reason)
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
    without = [number for number, has_gpu in enumerate(have_gpus) if not has_gpu]
    named = f"{', '.join(map(str, without[:_MOST_NAMED]))}{', ...' if len(without) > _MOST_NAMED else ''}"
    trainers = counted(len(have_gpus), "trainer")
    return "cpu", f"{len(without)} of {trainers} have no GPU of their own: {named}; GPUs are left idle"
