"""Over which trainers sums of dense gradients go, where there are many: level by level, each in groups of a few.

Trainers are numbered with the first level's place the fastest: trainer t is at place t % n of its group of the first
level, whose n members follow one another. Each group sums, then those at the same place of several groups do, and so
on; the totals come back the same way. A level costs each trainer a message to every other member of its group, there
and back, and a latency each way. Two levels are a grid.
"""

from collections.abc import Iterator

THREE_FROM_TRAINERS = 128
"""From so many trainers on there are three levels: their messages are predicted to take a mover longer than two more
latencies (docs/simulate.md)."""

TWO_PIECES_FROM_BYTES = 1 << 20
"""Of gradients, where there is another level: to add up their shares takes a while, and the messages more are few."""

Levels = tuple[int, ...]
"""Members of a group on each level; their product is the number of trainers."""


def sum_levels(trainers: int) -> Levels:
    """The levels with the fewest messages, two at most, or three of many trainers; the largest groups first.

    Of a prime number of trainers there is one.

    Args:
        trainers: number T, two at least.
    """
    most = 3 if trainers >= THREE_FROM_TRAINERS else 2
    return min(_divisions(trainers, most, trainers), key=lambda levels: (messages(levels), len(levels)))


def messages(levels: Levels) -> int:
    """How many messages a trainer sends there, and as many back."""
    return sum(members - 1 for members in levels)


def share_pieces(levels: int, nbytes: int) -> int:
    """In how many pieces shares travel to those who add them up: of two the first is added up while the second travels.

    Args:
        levels: that are left, one at least.
        nbytes: of the gradients that are shared out on the first of them, the same for all who do so.
    """
    return 2 if levels > 1 and nbytes >= TWO_PIECES_FROM_BYTES else 1


def _divisions(trainers: int, most: int, largest: int) -> Iterator[Levels]:
    """All ways to divide trainers into so many levels at most, whose groups have two members or more, ever fewer."""
    if 2 <= trainers <= largest:
        yield (trainers,)
    if most > 1:
        for members in range(2, min(largest, trainers // 2) + 1):
            if trainers % members == 0:
                yield from ((members, *others) for others in _divisions(trainers // members, most - 1, members))
