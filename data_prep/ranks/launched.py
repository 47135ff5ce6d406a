"""A team of the ranks that a launcher started; a single process needs neither MPI nor this file."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bagpipe_hpc.errors import BagpipeError
from bagpipe_hpc.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED
from bagpipe_hpc.mpi.questions import Questions
from bagpipe_hpc.mpi.start.world import abort_job, world_rank
from data_prep.ordered_map import fair_threads
from data_prep.ranks.board import Board
from data_prep.ranks.progress import Progress
from data_prep.ranks.team import Team

SILENCE_S = 300.0
"""A rank without a sign of life for this long is taken for dead; its work itself has no time limit."""


@contextmanager
def launched_team(progress: Progress, comm: Any = None) -> Iterator[Team]:
    """The ranks of the job; MPI must be running. Collective over: all of them, as is the end of the body.

    A failure that all ranks agree on (`Team.has_failed`) leaves the body as an error: on the first rank the error that
    ends the preparation, `OtherRankError` on the others. Any other exception ends the job here.

    Args:
        progress: called with lines on the first rank, perhaps from another thread.
        comm: communicator of some ranks of the job, which form the team; None for all.

    Raises:
        BagpipeError: on the first rank, the error that ends the preparation.
    """
    board = Board(progress)
    failure: BagpipeError | None = None
    try:
        with Questions(board.answer, SILENCE_S, comm) as questions:
            team = Team(questions, board, threads=1)
            places = team.gather((questions.host, frozenset(os.sched_getaffinity(0))))
            here = [rank for rank, (host, _) in enumerate(places) if host == questions.host]
            team.threads = fair_threads([places[rank][1] for rank in here], here.index(team.rank))
            try:
                yield team
            except BagpipeError as error:
                if not team.has_failed:
                    raise
                failure = error
    except KeyboardInterrupt:
        abort_job(
            "bagpipe: interrupted: the same command goes on from what is complete, with any number of ranks",
            EXIT_INTERRUPTED,
        )
    except BaseException as error:  # noqa: BLE001 - whatever it is, the other ranks would wait for this rank for ever
        message = f"bagpipe: error: {error}"
        if not isinstance(error, BagpipeError):
            message = f"bagpipe: rank {world_rank()} failed:\n{''.join(traceback.format_exception(error))}"
        abort_job(message, EXIT_FAILED)
    if failure is not None:
        raise failure
