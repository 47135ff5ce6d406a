"""Without a cache every batch fetches its rows, behind the write-back of the batch before, and writes them back."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.config.schema import KernelsConfig, PolicyConfig
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.planning.checking.policy_check import check_policy
from bagpipe_hpc.planning.policy import RunFacts
from bagpipe_hpc.planning.policy_choice import build_policy
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from tests.drawing import share_of
from tests.unit.planning.drawn_bags import skewed_batches

BACKENDS = ["reference", *(["native"] if shared_library.is_built("planner") else [])]
WAYS = [(backend, sharing) for backend in BACKENDS for sharing in ("replicated", "home")]


def made(trainers: int, backend: str, sharing: str) -> Any:
    run = RunFacts(np.asarray([0, 40, 100]), trainers, 9, kernels=KernelsConfig(backend=backend), sharing=sharing)
    return build_policy(PolicyConfig("none"), run)


@settings(max_examples=share_of(15), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.sampled_from(WAYS))
def test_it_trains_as_plain_training_does(seed: int, trainers: int, way: tuple[str, str]) -> None:
    batches = skewed_batches(seed, (40, 60))
    need = check_policy(made(trainers, *way), batches, Window(40, 10))
    assert need.window == Window(1, 1)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_stays(way: tuple[str, str]) -> None:
    """As many rows are fetched for a batch, and written back behind it, as it has."""
    policy, batches = made(3, *way), skewed_batches(7, (40, 60))
    *plans, closing = plan_segment(policy.planner(policy.window(Window(40, 10))), batches)
    for number, (plan, rows) in enumerate(zip(plans, batches, strict=True)):
        unique = np.unique(rows.values)
        fetched = [plan.shared.fetch_rows, *(part.fetch_rows for part in plan.trainers)]
        np.testing.assert_array_equal(np.sort(np.concatenate(fetched)), unique)
        written = np.concatenate([part.write_back_rows for part in plan.trainers])
        np.testing.assert_array_equal(np.sort(written), unique)
        assert (plan.shared.prefetch_after, plan.shared.retire_group) == (number, number + 1)
    assert not any(part.rows_written for part in closing.trainers)
