"""How servers and trainers agree on a checkpoint, and what it says of itself.

A checkpoint follows a segment, at whose end every row is on its server and every cache is empty:

    trainers                                        servers
    announce: a barrier, then step and kind   --->  serve until then: every write-back is in
    send which rows were updated              --->  copy the rows that are to be written
    wait until every server has its copy      <---  barrier
    go on training                                  serve again, and write the copy meanwhile
    the first one waits for all files         <---  report the file
    and commits

So what is written is the state between two steps, whatever the trainers do next. Where a server cannot hold a copy, it
writes before the barrier, and the trainers stand still.
"""

from collections.abc import Callable
from dataclasses import dataclass

from bagpipe_hpc.config.file import to_document
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.progress import serve_until_barrier
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.mpi.waiting import wait_for_barrier
from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.checkpoints.manifest import Arithmetic, Base, CheckpointManifest, FileInfo


@dataclass(frozen=True)
class Due:
    """A checkpoint that is to be written.

    Attributes:
        step: steps done.
        holds_all: whether it holds all rows; else those that were updated since the one before.
    """

    step: int
    holds_all: bool


def announce(comms: Communicators, due: Due | None, timeout_s: float) -> None:
    """On every trainer: tell the servers of a checkpoint, or that no other comes. Collective over: `comms.store`."""
    wait_for_barrier(comms.store, "every rank to reach the checkpoint", timeout_s)
    _share(comms, due if comms.role_rank == 0 else None, timeout_s)


def next_checkpoint(
    comms: Communicators,
    answer: Callable[[], bool],
    poll_interval_s: float,
    watch: Callable[[], None],
    timeout_s: float,
) -> Due | None:
    """On a server: serve until the trainers announce a checkpoint; None if no other comes.

    Every write-back is in then. Arguments as for `serve_until_barrier`; once all have come, what they announce must
    follow within `timeout_s`. Collective over: `comms.store`.
    """
    serve_until_barrier(comms.store, answer, poll_interval_s, watch)
    return _share(comms, None, timeout_s)


def _share(comms: Communicators, due: Due | None, timeout_s: float) -> Due | None:
    """What the first trainer announces, on every rank. Collective over: `comms.store`; a barrier must come before."""
    with TimeLimit("trainer 0 to announce a checkpoint", timeout_s):
        shared: Due | None = comms.store.bcast(due, root=comms.layout.servers)
    return shared


def wait_for_copies(comms: Communicators, timeout_s: float) -> None:
    """The moment from which rows may change again. Collective over: `comms.store`."""
    wait_for_barrier(comms.store, "the servers to copy the rows of the checkpoint", timeout_s)


def checkpoint_manifest(
    run: Run,
    step: int,
    segment: Segment,
    arithmetic: Arithmetic,
    servers: int,
    files: list[FileInfo],
    base: Base | None = None,
) -> CheckpointManifest:
    """What the checkpoint of a step says of itself."""
    train_samples = run.manifest.rows("train")
    epoch, epoch_step = divmod(step, -(-train_samples // segment.batch_size))
    return CheckpointManifest(
        step=step,
        epoch=epoch,
        epoch_step=epoch_step,
        seed=run.config.train.seed,
        batch_size=segment.batch_size,
        train_samples=train_samples,
        training_data=run.manifest.digest("train"),
        evaluation_data=run.manifest.digest("test"),
        table_names=tuple(table.name for table in run.manifest.tables),
        table_rows=run.manifest.table_rows,
        embedding_dim=run.config.model.embedding_dim,
        row_optimizer=run.config.optimizer.rows,
        row_state_columns=run.record.state_columns,
        servers=servers,
        placement="round_robin",
        base=base,
        files=tuple(files),
        arithmetic=arithmetic,
        config=to_document(run.config),
    )
