"""Settles what all ranks must know alike of the trainers' caches: where rows live, and which slots take memory late."""

import logging
from contextlib import AbstractContextManager, nullcontext

from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.planning.policy_choice import policy_class
from bagpipe_hpc.planning.sharing_choice import choose_sharing
from bagpipe_hpc.preparation.agreement import agree
from bagpipe_hpc.run.run import Run

log = logging.getLogger(__name__)


def settle_sharing(run: Run, comms: Communicators) -> Run:
    """The run with `cache.sharing` settled. Collective over: all ranks, which get the same answer.

    Raises:
        RefusalError: on every rank: the policy is none.
    """
    timeout_s = run.config.train.timeout_s
    known = agree(comms, lambda: policy_class(run.config.policy.name).sharings, timeout_s)
    on_gpu = False
    if comms.role is Role.TRAINER:
        from bagpipe_hpc.step.compute_setup import choose_device  # noqa: PLC0415 - torch, on trainers only

        on_gpu = choose_device(run.config.train.device, comms.gpu_number).type != "cpu"
    with TimeLimit("all ranks to say where they compute", timeout_s):
        any_gpu = any(comms.world.allgather(on_gpu))
    choice = choose_sharing(run.config.cache.sharing, known, comms.layout.trainers, on_gpus=any_gpu)
    if comms.role is Role.ORACLE:
        log.info("%s", choice)
    return run.with_sharing(choice.name)


def settle_reserved(run: Run, need: CacheNeed, comms: Communicators) -> CacheNeed:
    """The slots with reserved ones, if all trainers can have them, also at once: trainers of a host may share a limit.

    Collective over: all ranks, with the same answer.
    """
    if not need.reserved_rows:
        return need
    trial: AbstractContextManager[bool] = nullcontext(enter_result=True)
    if comms.role is Role.TRAINER:
        from bagpipe_hpc.preparation.compute_check import trying_to_reserve_slots  # noqa: PLC0415 - torch, as above

        trial = trying_to_reserve_slots(run, comms.gpu_number, need.groups)
    with trial as can_reserve, TimeLimit("all ranks to say what addresses they can have", run.config.train.timeout_s):
        all_can = all(comms.world.allgather(can_reserve))
    settled = need if all_can else need.in_memory()
    if comms.role is Role.ORACLE and all_can:
        log.info(
            "copies of rows may take up to %d slots more, which take memory once they are used", need.reserved_rows
        )
    elif comms.role is Role.ORACLE:
        log.info(
            "trainers cannot reserve slots (they compute on GPUs, or their address space is limited): of copies of "
            "rows the cache has twice the slots that are expected, %d in all; cache.measure=all takes what is needed",
            settled.total_rows,
        )
    return settled
