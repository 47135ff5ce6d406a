"""How servers and trainers write a checkpoint together: each its part, then one commits, then all go on.

Nothing is written back meanwhile: a checkpoint follows a segment, at whose end every row is on its server, and no
trainer starts the next segment's first step before the commit.
"""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.progress import serve_until_barrier
from bagpipe_hpc.mpi.waiting import wait_for_barrier
from bagpipe_hpc.roles.job import Job
from bagpipe_hpc.schedule import Segment
from bagpipe_hpc.storage.checkpoint import remove_older_checkpoints
from bagpipe_hpc.storage.checkpoint_manifest import CheckpointManifest, FileInfo
from bagpipe_hpc.storage.checkpoint_writer import CheckpointWriter

_NO_STEP = -1

DenseState = Callable[[], tuple[dict[str, Any], dict[str, Any]]]


def save_part(comms: Communicators, info: FileInfo | None, timeout_s: float) -> list[FileInfo]:
    """After writing this rank's file (None: it has none): wait for all others', then for the commit.

    Returns:
        On the first trainer, which has to commit and then call `wait_for_commit`, all files; elsewhere nothing.

    Collective over: `comms.store`.
    """
    leader = comms.layout.servers
    wait_for_barrier(comms.store, "every part of the checkpoint to be written", timeout_s)
    infos = comms.store.gather(info, root=leader)
    if infos is not None:
        return [part for part in infos if part is not None]
    wait_for_commit(comms, timeout_s)
    return []


def wait_for_commit(comms: Communicators, timeout_s: float) -> None:
    """The last step of a checkpoint. Collective over: `comms.store`."""
    wait_for_barrier(comms.store, "the checkpoint to be committed", timeout_s)


def announce_end(comms: Communicators, timeout_s: float) -> None:
    """On every trainer: tell the servers that no other checkpoint comes. Collective over: `comms.store`."""
    _announce(comms, _NO_STEP, timeout_s)


def next_checkpoint(comms: Communicators, answer: Callable[[], bool], poll_interval_s: float) -> int | None:
    """On a server: serve until the trainers announce a checkpoint; its step, or None if no other comes.

    Every write-back is in then. Collective over: `comms.store`.
    """
    serve_until_barrier(comms.store, answer, poll_interval_s)
    step: int = comms.store.bcast(None, root=comms.layout.servers)
    return None if step == _NO_STEP else step


def _announce(comms: Communicators, step: int, timeout_s: float) -> None:
    """The trainers' end of `next_checkpoint`: a barrier, and the first trainer's word."""
    wait_for_barrier(comms.store, "every rank to reach the checkpoint", timeout_s)
    comms.store.bcast(step if comms.role_rank == 0 else None, root=comms.layout.servers)


def write_dense_and_commit(
    job: Job, step: int, segment: Segment, comms: Communicators, dense: DenseState, timeout_s: float
) -> Path | None:
    """A trainer's part of a checkpoint: the first trainer writes the dense half and commits.

    Args:
        job: the run.
        step: steps done.
        segment: the segment that has ended, perhaps early.
        comms: this rank's communicators.
        dense: gives the `state_dict()` of the model and of its optimizer.
        timeout_s: longest wait for the other ranks.

    Returns:
        On the first trainer the checkpoint's directory.

    Collective over: `comms.store`.
    """
    _announce(comms, step, timeout_s)
    if comms.role_rank > 0:
        save_part(comms, None, timeout_s)
        return None
    writer = CheckpointWriter(Path(job.config.train.output), step)
    infos = save_part(comms, writer.write_dense(*dense()), timeout_s)
    directory = writer.commit(checkpoint_manifest(job, step, segment, comms.layout.servers, infos))
    remove_older_checkpoints(directory, job.config.train.keep_checkpoints)
    wait_for_commit(comms, timeout_s)
    return directory


def checkpoint_manifest(
    job: Job, step: int, segment: Segment, servers: int, infos: list[FileInfo]
) -> CheckpointManifest:
    """What the checkpoint of a step says of itself."""
    train_samples = job.manifest.rows("train")
    epoch, epoch_step = divmod(step, -(-train_samples // segment.batch_size))
    return CheckpointManifest(
        step=step,
        epoch=epoch,
        epoch_step=epoch_step,
        seed=job.config.train.seed,
        batch_size=segment.batch_size,
        train_samples=train_samples,
        table_rows=job.manifest.table_rows,
        embedding_dim=job.config.model.embedding_dim,
        row_optimizer=job.config.optimizer.rows,
        row_state_columns=job.record.state_columns,
        servers=servers,
        files=tuple(infos),
        config=asdict(job.config),
    )
