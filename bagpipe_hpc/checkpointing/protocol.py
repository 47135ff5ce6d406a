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
from pathlib import Path

from bagpipe_hpc.config.file import to_document
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.evaluation.standing import Standing
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.mpi.waiting import Answered, Polls, serve_until_barrier, wait_for_barrier
from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.manifest import Arithmetic, Base, CheckpointManifest
from bagpipe_hpc.storage.shards.columns import column_words


@dataclass(frozen=True)
class SavingSettings:
    """How a run saves itself.

    Attributes:
        output: the run's output folder.
        copies_rows: whether servers copy rows where memory is free for it, so that training goes on while they write.
        full_every: one in this many checkpoints holds all rows.
        kept: how many complete checkpoints are kept, besides those that they build on; 0 keeps all.
        timeout_s: longest wait for the other ranks, and for files to be written.
    """

    output: Path
    copies_rows: bool
    full_every: int
    kept: int
    timeout_s: float

    @classmethod
    def of(cls, config: Config, timeout_s: float) -> "SavingSettings":
        """Take them from a configuration; the larger the tables, the longer `timeout_s` should be."""
        train = config.train
        full_every, kept = train.full_checkpoint_every, train.keep_checkpoints
        return cls(Path(train.output), train.checkpoint_copy, full_every, kept, timeout_s)


@dataclass(frozen=True)
class Due:
    """A checkpoint that is to be written.

    Attributes:
        step: steps done.
        holds_all: whether it holds all rows; else only those that were updated since the checkpoint before.
    """

    step: int
    holds_all: bool


def announce(comms: Communicators, due: Due | None, timeout_s: float) -> None:
    """On every trainer: tell the servers of a checkpoint; None: no other comes. Collective over: `comms.store`."""
    wait_for_barrier(comms.store, "every rank to reach the checkpoint", timeout_s)
    _share(comms, due if comms.role_rank == 0 else None, timeout_s)


def next_checkpoint(
    comms: Communicators,
    answer: Callable[[], Answered],
    polls: Polls,
    timeout_s: float,
) -> Due | None:
    """On a server: serve until the trainers announce a checkpoint; None if no other comes.

    Every write-back has arrived by then. Arguments as for `serve_until_barrier`; once all trainers have reached the
    barrier, their announcement must follow within `timeout_s`. Collective over: `comms.store`.
    """
    serve_until_barrier(comms.store, answer, polls)
    return _share(comms, None, timeout_s)


def _share(comms: Communicators, due: Due | None, timeout_s: float) -> Due | None:
    """Give every rank what the first trainer announces. Collective over: `comms.store`; a barrier must come before."""
    with TimeLimit("trainer 0 to announce a checkpoint", timeout_s):
        shared: Due | None = comms.store.bcast(due, root=comms.layout.servers)
    return shared


def wait_for_copies(comms: Communicators, timeout_s: float) -> None:
    """Wait until all servers have their copies: then rows may change again. Collective over: `comms.store`."""
    wait_for_barrier(comms.store, "the servers to copy the rows of the checkpoint", timeout_s)


def checkpoint_manifest(
    run: Run,
    arithmetic: Arithmetic,
    servers: int,
    step: int,
    segment: Segment,
    files: list[FileInfo],
    base: Base | None = None,
    standing: Standing | None = None,
) -> CheckpointManifest:
    """The manifest of the checkpoint of a step.

    Args:
        run: the run that it belongs to.
        arithmetic: what decides about the bits of its weights.
        servers: number of servers.
        step: steps done.
        segment: the segment that has ended, perhaps early, with what was heard before it.
        files: its own files.
        base: the checkpoint that it builds on; None where it holds all rows.
        standing: the standing after the evaluations before that step.
    """
    train_samples, record = run.manifest.rows("train"), RowRecord.of(run.config)
    batches, of_these_rows = -(-train_samples // segment.batch_size), step - run.data_step
    epoch, epoch_step = divmod(of_these_rows, batches)
    vocabularies = run.manifest.vocabularies
    return CheckpointManifest(
        step=step,
        epoch=epoch,
        epoch_step=epoch_step,
        seed=run.config.train.seed,
        batch_size=segment.batch_size,
        train_samples=train_samples,
        data_step=run.data_step,
        training_data=run.manifest.digest("train"),
        evaluation_data=run.manifest.digest("test"),
        vocabularies=vocabularies.sha256 if vocabularies else None,
        columns=column_words(run.manifest),
        table_names=tuple(table.name for table in run.manifest.tables),
        table_rows=run.manifest.table_rows,
        table_widths=run.table_widths if {*run.table_widths} != {record.embedding_dim} else None,
        embedding_dim=record.embedding_dim,
        row_optimizer=run.config.optimizer.rows,
        row_state_columns=record.state_columns,
        row_state=record.state,
        servers=servers,
        placement=run.config.tables.placement,
        base=base,
        files=tuple(files),
        arithmetic=arithmetic,
        config=to_document(run.config),
        standing=standing,
        heard=tuple(one for one in segment.heard if one.steps(batches) < of_these_rows),
    )
