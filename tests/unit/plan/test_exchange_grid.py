"""Grids of trainers: who stands where, how rows for them lie, and when a grid is taken."""

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.plan.exchange import Flow
from bagpipe_hpc.plan.exchange_grid import Grid, choose_grid
from bagpipe_hpc.planning.checking.exchange import carried

grids = st.builds(Grid, st.integers(1, 5), st.integers(1, 5))


@given(grids)
def test_rows_for_a_column_lie_together(grid: Grid) -> None:
    """So that a message is one piece; within it, receivers follow one another down the column."""
    order = np.argsort(grid.sending_places).tolist()
    assert sorted(order) == list(range(grid.trainers))
    columns = [(column, list(group)) for column, group in groupby(order, key=lambda trainer: grid.place(trainer)[1])]
    assert [column for column, _ in columns] == list(range(grid.columns))
    assert all(group == sorted(group) for _, group in columns)


@given(grids, st.integers(0, 2**32))
def test_rows_reach_those_whom_they_are_for_in_the_order_of_their_senders(grid: Grid, seed: int) -> None:
    """Whatever the numbers of rows; each row says whose it is, and for whom."""
    rng = np.random.default_rng(seed)
    trainers = range(grid.trainers)
    counts = rng.integers(0, 4, (grid.trainers, grid.trainers))
    sent = counts * (1 - np.eye(grid.trainers, dtype=int))
    flows, rows = [], []
    for own in trainers:
        row, column = grid.place(own)
        through = [
            [sent[sender, receiver] for receiver in trainers if grid.place(receiver)[1] == column]
            for sender in trainers
            if grid.place(sender)[0] == row
        ]
        flows.append(Flow(grid, sent[own], counts[:, own], np.asarray(through)))
        order = np.argsort(grid.sending_places)
        rows.append(np.concatenate([np.full(sent[own, other], 100 * own + other) for other in order]))
    for own, parts in enumerate(carried(flows, rows)):
        for sender, part in enumerate(parts):
            assert part.tolist() == [100 * sender + own] * sent[sender, own]


@pytest.mark.parametrize(
    ("trainers", "grid"), [(1, (1, 1)), (4, (2, 2)), (6, (2, 3)), (7, (1, 7)), (64, (8, 8)), (200, (10, 20))]
)
def test_a_balanced_grid_has_the_fewest_messages(trainers: int, grid: tuple[int, int]) -> None:
    assert Grid.balanced(trainers) == grid
    possible = [Grid(rows, trainers // rows) for rows in range(1, trainers + 1) if trainers % rows == 0]
    assert Grid.balanced(trainers).messages == min(other.messages for other in possible)


@pytest.mark.parametrize(
    ("setting", "trainers", "grid", "told"),
    [
        ("direct", 256, (1, 256), "directly (cache.exchange = direct"),
        ("grid", 6, (2, 3), "over a grid of 2 x 3 (cache.exchange = grid: 3 messages of a trainer in place of 5"),
        ("grid", 5, (1, 5), "directly (cache.exchange = grid: 5 trainers make no grid of several rows"),
        ("auto", 126, (1, 126), "directly (cache.exchange = auto: fewer than 128 trainers"),
        (
            "auto",
            128,
            (8, 16),
            "over a grid of 8 x 16 (cache.exchange = auto: 22 messages of a trainer in place of 127",
        ),
        (
            "auto",
            256,
            (16, 16),
            "over a grid of 16 x 16 (cache.exchange = auto: 30 messages of a trainer in place of 255",
        ),
        ("auto", 257, (1, 257), "directly (cache.exchange = auto: 257 trainers make no grid of several rows"),
        (
            "auto",
            262,
            (1, 262),
            "directly (cache.exchange = auto: a grid takes 131 messages of a trainer in place of 261",
        ),
    ],
)
def test_the_choice_and_its_reason(setting: str, trainers: int, grid: tuple[int, int], told: str) -> None:
    choice = choose_grid(setting, trainers)
    assert choice.grid == grid
    assert str(choice) == f"rows between trainers: {told})"
