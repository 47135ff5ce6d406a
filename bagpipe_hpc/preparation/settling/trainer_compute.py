"""What a trainer says of itself before a run: where it computes, with which linear layers, threads and sums."""

import logging
import os

import torch

from bagpipe_hpc.cluster.core_share import cores_of, crowding
from bagpipe_hpc.cluster.session_groups import are_sessions_grouped
from bagpipe_hpc.models.sums.contract import has_horovod
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.mpi.waiting import wait_for_barrier
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.step.compute_setup import choose_device, start_threads, usable_linear
from bagpipe_hpc.step.dense.linear_choice import LinearWish, Offer, must_time
from bagpipe_hpc.step.dense.linear_timing import time_linear_layers
from bagpipe_hpc.step.dense.sums_choice import TrainerCores

log = logging.getLogger(__name__)


def trainer_device(run: Run, comms: Communicators) -> torch.device:
    """Where this trainer computes; see `choose_device`."""
    return choose_device(run.config.train.device, comms.gpu_number)


def offer_linear_layers(run: Run, comms: Communicators) -> Offer:
    """Start this trainer's threads, and find what can compute its linear layers: timed, where the choice depends on it.

    Collective over: the trainers.
    """
    config, device = run.config, trainer_device(run, comms)
    own, timeout_s = _own_cores(comms), config.train.timeout_s
    wait_for_barrier(comms.trainers, "the other trainers to say what they have", timeout_s)
    with TimeLimit("the other trainers to say what they have", timeout_s):
        cores, offered = zip(*comms.trainers.allgather((own, usable_linear(config, device))), strict=True)
    start_threads(config.train.threads, cores)
    if crowded := crowding(torch.get_num_threads(), cores):
        log.info(crowded)
    usable = [name for name in offered[0] if all(name in names for names in offered)]
    if not must_time(LinearWish.of(config, run.start), usable):
        return dict.fromkeys(usable)

    def slowest(seconds: float) -> float:
        wait_for_barrier(comms.trainers, "the other trainers to time their linear layers", timeout_s)
        with TimeLimit("the other trainers to say how long it took", timeout_s):
            found: list[float] = comms.trainers.allgather(seconds)
        return max(found)

    return time_linear_layers(config, run.model_facts, device, usable, comms.layout.trainers, slowest)


def cores_beside_threads(comms: Communicators) -> int:
    """How many cores of this trainer its threads, which were started, leave. Collective over: the trainers."""
    own = _own_cores(comms)
    return max(0, cores_of(own, comms.trainers.allgather(own)) - torch.get_num_threads())


def _own_cores(comms: Communicators) -> tuple[int, frozenset[int]]:
    """The number of this trainer's host, and the cores that it may use there."""
    return comms.hosts[comms.world.Get_rank()], frozenset(os.sched_getaffinity(0))


def trainer_cores(run: Run, comms: Communicators) -> TrainerCores:
    """Where this trainer computes, and with how many threads; they have been started."""
    host, cores = _own_cores(comms)
    has_gpu = trainer_device(run, comms).type != "cpu"
    return TrainerCores(host, cores, torch.get_num_threads(), has_gpu, has_horovod(), are_sessions_grouped())
