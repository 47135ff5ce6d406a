"""Which numbers each trainer adds up where all sum gradients, and where they lie for `MPI_Ialltoallv`. Pure.

The rows are cut into as many shares as there are trainers. Each trainer gets its share of everybody's gradients, in one
piece or several, and adds it up; then all get each other's sums.
"""

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from bagpipe_hpc.plan.grid_hops import Layout
from bagpipe_hpc.plan.slices import slice_bounds


class SharePiece(NamedTuple):
    """A piece of every trainer's share, all of which travel by one call, to be added up.

    Attributes:
        rows: which rows of its own share this trainer adds up then.
        sent: the piece of each trainer's share, in this one's gradients.
        taken: where this one's piece of each trainer's gradients goes, one trainer's behind the other's.
    """

    rows: slice
    sent: Layout
    taken: Layout


class SumShares(NamedTuple):
    """How gradients are shared out among those who add them up, as one of these trainers sees it.

    Attributes:
        own: the numbers of its own share among all gradients.
        pieces: in which the shares travel, in their order.
        sums_sent: what each other trainer gets of its sums: all of them.
        sums_taken: where the sums of each other trainer go among all gradients.
    """

    own: slice
    pieces: tuple[SharePiece, ...]
    sums_sent: Layout
    sums_taken: Layout


@lru_cache(maxsize=256)
def sum_shares(rows: int, width: int, trainers: int, rank: int, pieces: int) -> SumShares:
    """The shares of gradients `[rows, width]`, which are the same from step to step where the gradients are dense.

    Args:
        rows: number of rows.
        width: numbers of a row.
        trainers: that add them up.
        rank: of the trainer whose part this is.
        pieces: in which each share travels.
    """
    firsts = slice_bounds(rows, trainers)
    sizes = [last - first for first, last in pairwise(firsts)]
    cuts = [slice_bounds(size, pieces) for size in sizes]

    def piece(number: int) -> SharePiece:
        counts = [(cut[number + 1] - cut[number]) * width for cut in cuts]
        starts = [(first + cut[number]) * width for first, cut in zip(firsts[:-1], cuts, strict=True)]
        own = counts[rank]
        taken = Layout([own] * trainers, [own * trainer for trainer in range(trainers)])
        return SharePiece(slice(*cuts[rank][number : number + 2]), Layout(counts, starts), taken)

    to_others = [0 if trainer == rank else sizes[rank] * width for trainer in range(trainers)]
    of_others = [0 if trainer == rank else size * width for trainer, size in enumerate(sizes)]
    return SumShares(
        slice(firsts[rank] * width, firsts[rank + 1] * width),
        tuple(map(piece, range(pieces))),
        Layout(to_others, [0] * trainers),
        Layout(of_others, [first * width for first in firsts[:-1]]),
    )
