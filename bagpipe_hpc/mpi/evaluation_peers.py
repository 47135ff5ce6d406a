"""Trainers that share an evaluation, over MPI."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.evaluation.pairs import PairCounts
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.mpi.waiting import nothing_to_watch, wait_for_all, wait_for_barrier

_Value = TypeVar("_Value")
_RECORD = np.dtype([("key", np.uint64), ("clicks", np.int64), ("others", np.int64)])


class EvaluationPeers:
    """The `Peers` of an evaluation. Collective over: `comm`, as are its methods.

    Args:
        comm: the trainers.
        timeout_s: longest wait for another one.
        watch: raises what ended another thread of this rank.
    """

    def __init__(self, comm: MPI.Comm, timeout_s: float, watch: Callable[[], None] = nothing_to_watch) -> None:
        self._comm = comm
        self._timeout_s = timeout_s
        self._watch = watch
        self.count = comm.Get_size()

    def all_of(self, value: _Value) -> list[_Value]:
        """The values of all trainers.

        The barrier waits with a limit and without spinning, so that the gathering itself is short.

        Raises:
            WaitTimeoutError: a trainer did not come in time.
        """
        what = "the evaluations of the other trainers"
        wait_for_barrier(self._comm, what, self._timeout_s, self._watch)
        with TimeLimit(what, self._timeout_s):
            return self._comm.allgather(value)

    def trade(self, parts: Sequence[PairCounts]) -> list[PairCounts]:
        """Give part i to trainer i.

        Raises:
            WaitTimeoutError: it took too long.
        """
        sent = np.concatenate([_packed(part) for part in parts])
        sizes = np.asarray([part.keys.size for part in parts], dtype=np.int64)
        came = np.asarray(self.all_of(sizes.tolist()), dtype=np.int64)[:, self._comm.Get_rank()]
        received = np.empty(int(came.sum()), dtype=_RECORD)
        kind = MPI.BYTE.Create_contiguous(_RECORD.itemsize).Commit()
        try:
            request = self._comm.Ialltoallv([sent, sizes, kind], [received, came, kind])
            wait_for_all([request], "the predictions of the other trainers", self._timeout_s, self._watch)
        finally:
            kind.Free()
        return [_unpacked(part) for part in np.split(received, np.cumsum(came)[:-1])]


def _packed(counts: PairCounts) -> NDArray[np.void]:
    records = np.empty(counts.keys.size, dtype=_RECORD)
    records["key"], records["clicks"], records["others"] = counts.keys, counts.clicks, counts.others
    return records


def _unpacked(records: NDArray[np.void]) -> PairCounts:
    return PairCounts(records["key"], records["clicks"], records["others"])
