"""What is measured: rows of batches by how often they are looked up; each group once, by the middle of its runs."""

from pathlib import Path

import numpy as np
import pytest

from bagpipe_hpc.rows.access_statistics import AccessStatistics, read_statistics
from bagpipe_hpc.rows.placements.assignment import WholeTable
from bagpipe_hpc.tools.sharding.measured_costs import DROPPED, RUNS, WARM_UPS, MeasuredCosts
from bagpipe_hpc.tools.sharding.task import FEATURES, groups_of, slowest_ms, table_features
from tests.statistics_files import write_accesses

COUNTS = {"C1": [0, 90, 10, 0, 0], "C2": [1] * 40, "C3": [0, 0]}
TABLES = [WholeTable("C1", 5, 4, 20), WholeTable("C2", 40, 8, 36), WholeTable("C3", 2, 4, 20)]


@pytest.fixture
def statistics(tmp_path: Path) -> AccessStatistics:
    return read_statistics(write_accesses(tmp_path / "accesses.npz", COUNTS, coverage=0.5))


class Ticks:
    """A clock whose steps grow: reading number n gives n * n."""

    def __init__(self) -> None:
        self.readings = 0

    def __call__(self) -> float:
        self.readings += 1
        return float(self.readings**2)


def test_a_group_is_measured_once_by_the_middle_of_its_runs(statistics: AccessStatistics) -> None:
    clock = Ticks()
    costs = MeasuredCosts(TABLES, statistics, 50, 1, 1 << 30, clock)
    found = costs.cost([1, 0])
    assert clock.readings == 3 * (WARM_UPS + RUNS)
    assert costs.cost((0, 1)) is found
    assert costs.measured == 1
    # Run r reads the clock at 3r + 1, 3r + 2, 3r + 3: the differences are 6r + 3 and 6r + 5.
    middle = np.arange(WARM_UPS + DROPPED, WARM_UPS + RUNS - DROPPED)
    assert found.forward_ms == pytest.approx(1e3 * (6 * middle + 3).mean())
    assert found.backward_ms == pytest.approx(1e3 * (6 * middle + 5).mean())
    costs.forget()
    assert costs.cost([0, 1]) != found
    assert costs.measured == 2


def test_rows_are_drawn_by_their_look_ups_and_keep_what_they_hold(statistics: AccessStatistics) -> None:
    costs = MeasuredCosts(TABLES, statistics, 30, 1, 1 << 30)
    first, second, none = costs._rows
    assert len(first) == len(second) == WARM_UPS + RUNS
    assert none == []
    assert {int(row) for batch in first for row in batch} <= {1, 2}
    assert all(1 in batch for batch in first)
    assert all(len(batch) <= 12 for batch in second)  # 0.4 look-ups a sample
    assert costs.cost([2]).total_ms == costs.cost([]).total_ms == 0.0
    assert costs.cost([0, 1, 2]).total_ms > 0
    assert all((table == 1).all() for table in costs._tables)  # gathered and put back


def test_large_tables_are_measured_with_fewer_rows(statistics: AccessStatistics) -> None:
    whole = sum(table.bytes for table in TABLES)
    costs = MeasuredCosts(TABLES, statistics, 30, 1, whole // 2)
    assert [len(table) for table in costs._tables] == [2, 20, 1]
    assert costs.cost([0, 1]).total_ms > 0


def test_features_are_those_of_the_tables(statistics: AccessStatistics) -> None:
    features = table_features(TABLES, statistics)
    assert features.shape == (3, FEATURES)
    assert features[:, :4].mean(axis=0) == pytest.approx(0, abs=1e-6)
    assert features[:, :4].std(axis=0) == pytest.approx(1, abs=1e-6)
    look_ups = np.array([1.0, 0.4, 0.0])
    assert features[:, 2] == pytest.approx((look_ups - look_ups.mean()) / look_ups.std(), abs=1e-6)
    assert features[0, 4:].tolist() == [0, 0, 0, 0, 0.5, 0, 0, 0.5, *[0] * 9]
    assert features[1, 4:].tolist() == [1, *[0] * 16]
    assert not features[2, 4:].any()


def test_the_slowest_server_counts(statistics: AccessStatistics) -> None:
    costs = MeasuredCosts(TABLES, statistics, 30, 1, 1 << 30)
    assert groups_of([1, 0, 1], 3) == [(1,), (0, 2), ()]
    assert slowest_ms(costs, [1, 0, 1], 3) == max(costs.cost([1]).total_ms, costs.cost([0, 2]).total_ms)
