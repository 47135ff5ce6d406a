"""Which planner runs, and how it keeps its tables, follows from the settings."""

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.config.doors import NoSettings
from bagpipe_hpc.config.schema import KernelsConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels import backend, shared_library
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.planning.lookahead.home_rules import HomePlanner
from bagpipe_hpc.planning.lookahead.native import NativePlanner
from bagpipe_hpc.planning.lookahead.planner_threads import ThreadShares, share_out
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner
from bagpipe_hpc.planning.policy import RunFacts
from bagpipe_hpc.planning.slots import MOST_SLOTS, CacheSlots
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.partition import table_offsets

OFFSETS = table_offsets([3, 1000, 100_000_000])
WINDOW = Window(10, 2)

needs_native = pytest.mark.skipif(not shared_library.is_built("planner"), reason="_planner.so is not built")


def policy(
    offsets: np.ndarray = OFFSETS,
    samples: int = 64,
    *,
    verify: bool = False,
    feature_tables: tuple[int, ...] = (),
    mean_look_ups: tuple[float, ...] = (),
    sharing: str = "replicated",
    **kernels: Any,
) -> LookaheadPolicy:
    of_features = {"feature_tables": feature_tables, "mean_look_ups": mean_look_ups}
    facts = RunFacts(
        offsets, 2, samples, kernels=KernelsConfig(**kernels), verify=verify, sharing=sharing, **of_features
    )
    return LookaheadPolicy(NoSettings(), facts)


@pytest.fixture(autouse=True)
def decide_anew() -> None:
    backend.use_native.cache_clear()


@needs_native
@pytest.mark.parametrize("name", ["auto", "native"])
def test_the_native_planner_runs_where_it_is_built(name: str) -> None:
    planner = policy(backend=name).planner(WINDOW, 5, 5)
    assert isinstance(planner, NativePlanner)
    assert planner.window == WINDOW


def test_the_reference_runs_where_it_is_asked_for() -> None:
    chosen = policy(table_offsets([3, 1000]), backend="reference", verify=True)
    assert isinstance(chosen.planner(WINDOW), LookaheadPlanner)


@pytest.mark.usefixtures("nothing_built")
def test_without_native_code_auto_takes_the_reference_and_native_is_refused() -> None:
    assert not policy(backend="auto").is_native
    with pytest.raises(ConfigError, match=r"kernels\.backend = 'native': _planner\.so was not built"):
        policy(backend="native").planner(WINDOW)


def test_only_the_native_planner_is_sparse() -> None:
    with pytest.raises(ConfigError, match=r"kernels\.planner_state = 'sparse': only the native planner has it"):
        policy(backend="reference", planner_state="sparse").planner(WINDOW)


@pytest.mark.parametrize(
    ("state", "sparse"), [("dense", [False] * 3), ("sparse", [True] * 3), ("auto", [False, False, True])]
)
def test_tables_are_hashed_where_that_takes_less(state: str, sparse: list[bool]) -> None:
    np.testing.assert_array_equal(policy(planner_state=state).sparse_tables(WINDOW), sparse)


@needs_native
def test_tables_of_most_of_all_numbers_are_hashed_as_others() -> None:
    """What an array of them would take is no 64-bit number."""
    offsets = table_offsets([1000, 1 << 60, 1 << 61, 1 << 62])
    chosen = policy(offsets)
    np.testing.assert_array_equal(chosen.sparse_tables(WINDOW), [False, True, True, True])
    assert 0 < chosen.least_bytes(WINDOW, 100) < 1 << 20
    planner = chosen.planner(WINDOW)
    planner.start_segment(training=True, first_step=0)
    planner.load(Bags.one_hot(np.array([[7, *(offsets[2:] - 1)]])), [0, 1, 1])
    own, _ = planner.plan(0).trainers
    assert own.fetch_rows.tolist() == [7, *(offsets[2:] - 1)]


def test_the_look_ups_of_a_table_decide_how_it_is_kept() -> None:
    """Two features that share it, or bags, make as many look-ups as more samples would."""
    offsets = table_offsets([10_000, 10_000, 10_000])
    states = {
        "one feature each": policy(offsets),
        "a shared table": policy(offsets, feature_tables=(0, 2, 0, 0)),
        "bags": policy(offsets, mean_look_ups=(1.5, 0.1, 2.8)),
    }
    found = {name: chosen.sparse_tables(WINDOW).tolist() for name, chosen in states.items()}
    assert found == {
        "one feature each": [True, True, True],
        "a shared table": [False, True, True],
        "bags": [True, True, False],
    }


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"feature_tables": (0, 3)}, r"feature_tables \(0, 3\): there are 3 tables"),
        ({"mean_look_ups": (1.0,)}, r"mean_look_ups \(1.0,\): there are 3 tables"),
    ],
)
def test_facts_that_do_not_fit_the_tables_are_refused(wrong: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        policy(**wrong)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_the_least_memory_of_ragged_batches_is_that_of_any(backend: str) -> None:
    """Bags of the mean length, and none at all."""
    if backend == "native" and not shared_library.is_built("planner"):
        pytest.skip("_planner.so is not built")
    offsets = table_offsets([900, 300])
    chosen = policy(offsets, 1000, mean_look_ups=(60.0, 0.0), feature_tables=(0, 1), backend=backend)
    for length in (60, 0):
        planner = chosen.planner(Window(3, 1))
        planner.start_segment(training=True, first_step=0)
        for _ in range(3):
            lengths = np.tile([length, 0], (1000, 1))
            planner.load(Bags.ragged(np.zeros(lengths.sum(), dtype=np.int64), lengths))
        size = planner.size()
        assert chosen.least_bytes(Window(3, 1), most_batches=100) <= size.state_bytes + size.window_bytes + 1000


@needs_native
def test_auto_takes_the_smaller_state() -> None:
    """At the border: a row more makes a table sparse, and then its state cannot outgrow the array."""
    border = 46 * 10 * 64 // 8
    offsets = table_offsets([border, border + 1])
    chosen = policy(offsets, backend="native")
    np.testing.assert_array_equal(chosen.sparse_tables(WINDOW), [False, True])
    planner = chosen.planner(WINDOW)
    distinct = np.arange(20 * 64).reshape(20, 64, 1)
    planner.start_segment(training=True, first_step=0)
    for rows in distinct[:10]:
        planner.load(Bags.one_hot(np.concatenate((rows, rows + border), axis=1)))
    assert planner.size().state_bytes <= 8 * (2 * border + 1)


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("sharing", ["replicated", "home"])
@pytest.mark.parametrize("samples", [64, 70_000])
def test_the_least_memory_is_no_more_than_a_planner_takes(
    backend: str, verify: bool, samples: int, sharing: str
) -> None:
    """And no small part of it."""
    if backend == "native" and not shared_library.is_built("planner"):
        pytest.skip("_planner.so is not built")
    offsets = table_offsets([90_000, 300, 100_000_000] if backend == "native" else [90_000, 300, 400_000])
    chosen = policy(offsets, samples, backend=backend, verify=verify, sharing=sharing)
    window = Window(3, 1)
    planner = chosen.planner(window)
    planner.start_segment(training=True, first_step=0)
    least = chosen.least_bytes(window, most_batches=100)
    assert chosen.least_bytes(Window(10**9, 1), most_batches=3) >= least
    for _ in range(3):
        planner.load(Bags.one_hot(np.zeros((samples, 3), dtype=np.int64) + offsets[:-1]))
    size = planner.size()
    assert 0.2 * (size.state_bytes + size.window_bytes) < least + 10_000
    assert least <= size.state_bytes + size.window_bytes + 1000


@pytest.mark.parametrize(
    ("samples", "cores", "asked", "threads"),
    [(64, 4, 0, 1), (65536, 99, 0, 8), (65536, 2, 0, 2), (65536, 1, 0, 1), (1 << 20, 99, 0, 32), (64, 1, 5, 5)],
)
def test_threads_follow_from_the_look_ups_of_a_batch_and_the_cores(
    samples: int, cores: int, asked: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert policy(table_offsets([9] * 26), samples, planner_threads=asked).thread_shares.total == threads


@pytest.mark.parametrize(
    ("sharing", "trainers", "threads", "expected"),
    [
        ("replicated", 64, 3, (3, 0, 0)),
        ("replicated", 64, 8, (8, 4, 0)),
        ("home", 2, 3, (3, 0, 0)),
        ("home", 2, 8, (8, 4, 2)),
        ("home", 64, 16, (16, 8, 5)),
        ("home", 256, 4, (4, 1, 2)),
        ("home", 256, 0, (25, 9, 12)),
    ],
)
def test_threads_load_and_write_where_there_are_enough(
    sharing: str, trainers: int, threads: int, expected: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them write where many trainers make plans larger. Plans of replicated rows are written when decided."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(99)))
    whole = policy(table_offsets([9] * 26), 65536, sharing=sharing, planner_threads=threads)
    shares = LookaheadPolicy(NoSettings(), replace(whole.facts, trainers=trainers)).thread_shares
    assert shares == ThreadShares(*expected)


@pytest.mark.parametrize("trainers", [2, 16, 128, 1000, 4000, 30_000])
@pytest.mark.parametrize("threads", [4, 5, 9, 64])
def test_somebody_does_each_part_of_the_work(threads: int, trainers: int) -> None:
    shares = share_out(threads, trainers, writes_apart=True)
    assert min(shares.loading, shares.writing, shares.deciding) >= 1
    assert shares.writing * trainers**2 <= max(1 << 23, trainers**2)
    shares = share_out(threads, trainers, writes_apart=False)
    assert 1 <= shares.loading < threads
    assert not shares.writing


@pytest.mark.parametrize("counts", [(3, 1, 2), (1, -1, 1), (0, 0, 0), (2, 3, -1)])
def test_a_thread_at_least_decides(counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=f"of {counts[0]} threads one at least decides"):
        ThreadShares(*counts)


@needs_native
def test_who_verifies_rows_writes_plans_one_after_the_other() -> None:
    """Each needs to know the versions that the one before it leaves."""
    chosen = policy(sharing="home", verify=True, planner_threads=8)
    assert chosen.thread_shares == ThreadShares(8, 4, 0)
    planner = chosen.planner(WINDOW)
    assert isinstance(planner, NativePlanner)
    assert planner.writing_threads == 0


@needs_native
def test_rows_with_homes_have_a_native_planner() -> None:
    """Which has the state of the one for replicated rows, an array or a hash table."""
    for state, sparse in (("auto", [False] * 2 + [True]), ("sparse", [True] * 3)):
        chosen = policy(sharing="home", planner_state=state)
        assert chosen.is_native
        assert isinstance(chosen.planner(WINDOW), NativePlanner)
        np.testing.assert_array_equal(chosen.sparse_tables(WINDOW), sparse)
    planners = [
        policy(table_offsets([500]), sharing=sharing).planner(Window(3, 1)) for sharing in ("replicated", "home")
    ]
    batch = Bags.one_hot(np.arange(4).reshape(4, 1))
    for planner in planners:
        planner.start_segment(training=True, first_step=0)
        planner.load(batch)
    fetched = [[part.fetch_rows.size for part in planner.plan(0).trainers] for planner in planners]
    assert fetched == [[2, 2], [2, 2]]
    assert planners[0].size().state_bytes == planners[1].size().state_bytes


@needs_native
def test_uses_of_rows_decide_how_wide_an_index_is() -> None:
    """With homes a look-up's index names a row and a trainer, so there may be more of them than rows of the table."""
    offsets = table_offsets([60_000])
    needs = [
        policy(offsets, 70_000, sharing=sharing).least_bytes(Window(3, 1), 100) for sharing in ("replicated", "home")
    ]
    pairs_of_trainers = 2 * 2 * (32 + 20 * 2)
    assert needs[1] - needs[0] == 2 * 3 * 70_000 + pairs_of_trainers


def test_rows_with_homes_take_more_in_numpy() -> None:
    """Which lacks the native planner's tables, whatever is shared."""
    homes, replicated = (
        policy(table_offsets([500]), sharing=sharing, backend="reference") for sharing in ("home", "replicated")
    )
    window = Window(3, 1)
    assert isinstance(homes.planner(window), HomePlanner)
    assert homes.least_bytes(window, 9) == replicated.least_bytes(window, 9) + 4 * 500
    assert homes.planner(window).size().state_bytes == replicated.planner(window).size().state_bytes + 4 * 500
    with pytest.raises(ConfigError, match=r"kernels\.planner_state = 'sparse': only the native planner has it"):
        policy(sharing="home", backend="reference", planner_state="sparse").planner(window)


@pytest.mark.parametrize(
    ("sharing", "samples", "beginning", "expected"),
    [
        ("replicated", 400, CacheSlots(101, 8), CacheSlots(127, 10)),
        ("replicated", 900, CacheSlots(490, 450), CacheSlots(500, 500)),
        ("home", 400, CacheSlots(100, 101), CacheSlots(800, 127, 2 * (400 - 63))),
        ("home", 900, CacheSlots(0, 101), CacheSlots(1000, 127, 1000)),
        ("home", 900, CacheSlots(980, 490), CacheSlots(1000, 500)),
        ("home", 60, CacheSlots(100, 101), CacheSlots(120, 127)),
    ],
)
def test_slots_of_a_run_that_is_measured_by_its_beginning(
    sharing: str, samples: int, beginning: CacheSlots, expected: CacheSlots
) -> None:
    """A quarter more; of copies, which have two areas, as many are reserved as a batch has look-ups or tables rows."""
    facts = RunFacts(np.asarray([0, 500]), 2, samples, feature_tables=(0,), sharing=sharing)
    policy = LookaheadPolicy(NoSettings(), facts)
    assert policy.fetches_late
    assert policy.expected_slots(beginning) == expected


@pytest.mark.parametrize("of_features", [{"feature_tables": (0,), "mean_look_ups": (1.5,)}, {}])
def test_bags_and_any_number_of_features_may_have_copies_of_all_rows(of_features: dict[str, Any]) -> None:
    facts = RunFacts(np.asarray([0, 500]), 2, 10, sharing="home", **of_features)
    assert LookaheadPolicy(NoSettings(), facts).expected_slots(CacheSlots(8, 20)) == CacheSlots(1000, 25, 990)


def test_slots_can_be_numbered_with_those_of_copies() -> None:
    facts = RunFacts(np.asarray([0, 1 << 40]), 2, 10, mean_look_ups=(1.5,), sharing="home")
    slots = LookaheadPolicy(NoSettings(), facts).expected_slots(CacheSlots(8, 1 << 20))
    assert MOST_SLOTS - 2 < slots.total <= MOST_SLOTS
    assert slots.held == 10 + (1 << 20) * 5 // 4


class PlansInItsOwnWay(LookaheadPolicy):
    def planner(self, window: Window, shared: int = 9, private: int = 9) -> LookaheadPlanner:
        return LookaheadPlanner(9, 2, window, shared, private)


class HasHomesToo(PlansInItsOwnWay):
    sharings = ("replicated", "home")


def test_who_makes_planners_of_its_own_says_for_which_sharings() -> None:
    assert PlansInItsOwnWay.sharings == ("replicated",)
    assert HasHomesToo.sharings == LookaheadPolicy.sharings
