"""What is recommended follows from rows, bytes and times, and the reasons say how."""

from types import SimpleNamespace
from typing import Any

import pytest

from bagpipe_hpc.cluster.server_memory import Need
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.tools.forecast.advice import Advice, Split, advise_nodes, advise_window, splits_of
from bagpipe_hpc.tools.forecast.rank_memory import RankMemory
from bagpipe_hpc.tools.forecast.timing import Timing

MB = 10**6


def outlook(window: int = 4, *, rows: int = 100, limit: int = 0, kb: float = 1.0, trainers: int = 2) -> Any:
    """A window that needs so many rows, and moves so many bytes for a batch."""
    return SimpleNamespace(
        trainers=trainers,
        lookahead=window,
        fits=not limit or rows <= limit,
        need=SimpleNamespace(window=Window(window, max(1, window // 4)), total_rows=rows, is_exact=True),
        run=SimpleNamespace(config=SimpleNamespace(cache=SimpleNamespace(rows=limit))),
        trainer_link=SimpleNamespace(both=1e3 * kb),
        smaller_planner="",
    )


def timing(step_ms: float, *, is_known: bool = True) -> Timing:
    """Of steps that take so long; where `is_known`, with their computing."""
    prediction: Any = SimpleNamespace(step_s=1e-3 * step_ms)
    return Timing(1e9, 1e-3 * step_ms, 0.0, 0.0, prediction if is_known else None)


@pytest.mark.parametrize(
    ("steps_ms", "chosen", "told"),
    [
        ([8, 4, 2, 1], 8, "8: 1.00, 4: 2.00"),
        ([8, 4, 1.01, 1], 4, "4: 1.01, 2: 4.00, 8: 1.00"),
        ([1, 1, 1, 1], 1, "1: 1.00, 2: 1.00"),
        ([1.03, 3, 2, 1], 8, "8: 1.00, 4: 2.00"),
    ],
)
@pytest.mark.parametrize("is_known", [True, False])
def test_the_shortest_window_that_is_good_enough(steps_ms: list[float], chosen: int, told: str, is_known: bool) -> None:
    """Its time is told beside those of its neighbours."""
    windows = [outlook(window, rows=100 * window) for window in (1, 2, 4, 8)]
    timings = {one.lookahead: timing(ms, is_known=is_known) for one, ms in zip(windows, steps_ms, strict=True)}
    best, advice = advise_window(windows, timings)
    assert best in windows
    group = max(1, chosen // 4)
    settings = f"lookahead.batches={chosen}", f"lookahead.group={group}", f"cache.rows={100 * chosen}"
    what = "ms a step" if is_known else "ms a step of rows, sums and plans alone"
    reasons = f"{what} by lookahead.batches: {told}", "cache.rows: the most that the window has resident at once"
    assert (best.lookahead, advice) == (chosen, Advice("T = 2", settings, reasons, 2))


def test_windows_without_a_time_are_not_judged() -> None:
    """Unless there is none with a time: then bytes decide."""
    windows = [outlook(1, kb=1020), outlook(2, kb=1021), outlook(4, kb=1000), outlook(8, kb=1001)]
    best, advice = advise_window(windows, {1: timing(3.0), 2: timing(1.0)})
    assert best is windows[1]
    assert advice.reasons[:2] == (
        "ms a step by lookahead.batches: 2: 1.00, 1: 3.00",
        "not judged, since too few batches were planned to tell their time: 4, 8",
    )
    best, advice = advise_window(windows, {})
    assert best is windows[0]
    assert advice.reasons[0] == "kB a trainer and batch by lookahead.batches: 1: 1,020.00, 2: 1,021.00"
    assert len(advice.reasons) == 2


def test_windows_that_need_more_than_the_cache_are_left_out() -> None:
    windows = [outlook(window, rows=rows, limit=30) for window, rows in ((1, 20), (2, 30), (4, 40), (8, 60))]
    timings = {one.lookahead: timing(8 / one.lookahead) for one in windows}
    windows[1].need.is_exact = False
    best, advice = advise_window(windows, timings)
    assert best is windows[1]
    assert advice.reasons[1:] == (
        "windows of 4, 8 batches need more than cache.rows = 30",
        "cache.rows: the most that the window has resident at once, by the batches that were planned: later ones may "
        "need more",
    )


def test_where_no_window_fits_the_one_that_needs_least_is_told() -> None:
    best, advice = advise_window([outlook(window, rows=rows, limit=10) for window, rows in ((1, 30), (4, 20))], {})
    assert best is None
    needs = "no window tried fits cache.rows = 10: one of 4 batches needs 20 rows"
    assert advice == Advice("T = 2", reasons=(needs,), trainers=2)


def test_nodes_have_servers_or_trainers() -> None:
    assert splits_of(1, [1, 2, 4], 2) == [(1, 0), (2, 0)]
    assert splits_of(4, [1, 2, 3, 4], 1) == [(1, 3), (2, 2), (3, 1)]
    assert splits_of(3, [1, 2, 4, 5], 2) == [(1, 2), (2, 2), (4, 1)]


def split(trainers: int, servers: int, samples_per_s: float, *, trainer_mb: int = 1) -> Split:
    """Nodes with a server of 2 MB each, beside those of trainers."""
    tables = Need(tables_bytes=2 * MB, fullest_server_bytes=2 * MB)
    memory = RankMemory(servers, Need(), tables, Need(caches_bytes=trainer_mb * MB), 0, 0)
    return Split(outlook(trainers=trainers), servers, samples_per_s, memory)


ADVICE = {trainers: Advice(f"T = {trainers}", (f"cache.rows={trainers}",)) for trainers in (1, 2, 3)}


@pytest.mark.parametrize(("rates", "chosen"), [((95, 100, 90), 1), ((94, 96, 100), 2), ((10, 20, 100), 3)])
def test_the_fewest_trainers_that_are_about_as_fast(rates: tuple[float, ...], chosen: int) -> None:
    """In whatever order they come."""
    splits = [split(trainers, 4 - trainers, rate) for trainers, rate in enumerate(rates, start=1)]
    for order in (splits, splits[::-1]):
        advice = advise_nodes(4, order, ADVICE, 1, 10 * MB)
        servers = 4 - chosen
        assert advice.settings == (f"roles.servers={servers}", f"cache.rows={chosen}")
        assert (advice.trainers, advice.servers, advice.nodes) == (chosen, servers, 4)
        assert advice.title == "4 nodes: 5 ranks"
        assert advice.reasons[1] == f"window and cache as for T = {chosen}"


def test_only_ranks_that_find_memory_count() -> None:
    """A node without room is named, that of the last number of trainers where none has it."""
    splits = [split(1, 3, 50), split(2, 2, 60, trainer_mb=20), split(3, 1, 100, trainer_mb=30)]
    advice = advise_nodes(4, splits, ADVICE, 1, 25 * MB)
    assert advice.trainers == 2
    assert advice.reasons[0] == "samples/s by trainers and servers: 1 and 3: 50, 2 and 2: 60"
    assert advise_nodes(4, splits, ADVICE, 1, 10 * MB).trainers == 1
    advice = advise_nodes(4, splits[1:], ADVICE, 1, 10 * MB)
    assert (advice.title, advice.settings, advice.nodes) == ("4 nodes", (), 4)
    assert advice.reasons[0].startswith("T = 3: tables, row caches, ")
    assert "on node 0" in advice.reasons[0]
    assert advise_nodes(2, [split(2, 1, 60, trainer_mb=6)], ADVICE, 2, 10 * MB).settings == (), "both on one node"


def test_numbers_of_trainers_that_do_not_fit_are_told() -> None:
    fits = "no number of trainers that was planned fits, with 4 on a node"
    assert advise_nodes(1, [], {}, 4, MB).reasons == (fits,)
    assert advise_nodes(2, [], {}, 4, MB).reasons == (f"{fits}, and a node for servers",)
