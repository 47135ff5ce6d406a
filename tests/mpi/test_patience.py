"""A wait is over when its time has passed, but for the time in which the waiter stood still itself."""

from types import SimpleNamespace

import pytest

from bagpipe_hpc.mpi import patience
from bagpipe_hpc.mpi.patience import LONGEST_LOOK_S, Patience


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(
    ("looks_s", "is_over"),
    [
        pytest.param([0.5] * 10, False, id="all of it"),
        pytest.param([0.5] * 10 + [0.01], True, id="more"),
        pytest.param([1000.0], False, id="a standstill"),
        pytest.param([0.5] * 7 + [1000.0, 0.5], False, id="a standstill that counts as one look"),
        pytest.param([0.5] * 7 + [1000.0, 0.51], True, id="and more"),
        pytest.param([LONGEST_LOOK_S] * 6, True, id="looks as seldom as may be"),
    ],
)
def test_a_wait_of_five_seconds(monkeypatch, looks_s, is_over):
    now_s = 100.0
    monkeypatch.setattr(patience, "time", SimpleNamespace(monotonic=lambda: now_s))
    waited = Patience(5.0)
    found = False
    for look_s in looks_s:
        assert not found
        now_s += look_s
        found = waited.is_over()
    assert found == is_over
