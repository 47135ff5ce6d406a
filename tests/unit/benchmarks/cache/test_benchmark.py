"""`python -m benchmarks cache`: what is counted, and a tiny measurement from start to end."""

import argparse

import pytest
import torch

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels.rows.reference import ReferenceRowOperations
from benchmarks.cache import benchmark as cache
from benchmarks.cache.copy_speed import PlainCopy
from benchmarks.cache.workload import CacheWorkload

CPU = torch.device("cpu")
WIDTH, CACHE_ROWS = 4, 100_000


@pytest.fixture(scope="module")
def workload() -> CacheWorkload:
    return CacheWorkload(WIDTH, table_bytes=4 * WIDTH * CACHE_ROWS, device=CPU)


def test_every_number_counts_once(workload: CacheWorkload) -> None:
    """Per row: a slot, the gradient or record, and what is read and written of weights and state."""
    counted = {(call.name, call.size): call.moved_bytes for call in workload.operations()}
    rows = CACHE_ROWS // 2
    assert counted["gather rows", "large"] == rows * 4 * (1 + 2 * WIDTH)
    assert counted["scatter records", "large"] == rows * 4 * (1 + 2 * (WIDTH + 1))
    assert counted["sgd", "large"] == rows * 4 * (1 + 3 * WIDTH)
    assert counted["rowwise_adagrad", "large"] == rows * 4 * (1 + 3 * WIDTH + 2)
    assert counted["adagrad", "large"] == rows * 4 * (1 + 5 * WIDTH)
    assert counted["adam", "large"] == rows * 4 * (1 + 7 * WIDTH)


def test_a_row_that_is_looked_up_often_is_read_once(workload: CacheWorkload) -> None:
    calls = {call.name: call for call in workload.operations() if call.size == "batch"}
    distinct, look_ups = calls["gather rows"].rows, calls["look_up"].rows
    assert distinct < look_ups == 16384 * 26
    found = calls["look_up"].run(ReferenceRowOperations())
    assert isinstance(found, torch.Tensor)
    assert found.shape == (look_ups, WIDTH)
    assert calls["look_up"].moved_bytes == 4 * (distinct + look_ups) * (1 + WIDTH)
    assert calls["sum"].moved_bytes == 4 * (look_ups * (1 + WIDTH) + distinct * WIDTH)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_plain_copy_copies_all_of_it(threads: int) -> None:
    copy = PlainCopy(CPU, threads)
    assert copy.gb_per_s(moved_bytes=2 * 1001) > 0
    assert copy._target[:1001].all()
    assert not copy._target[1001:2000].any()


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="--devices cuda: torch sees no GPU here"):
        cache.run(argparse.Namespace(devices=["cuda"]))


@pytest.mark.slow
def test_a_measurement_from_start_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_QUICK_TABLE_BYTES", 4 * WIDTH * CACHE_ROWS)
    monkeypatch.setattr(cache, "keep_all_freed_memory", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = cache.run(argparse.Namespace(quick=True, runs=1, widths=[WIDTH], threads=[1], devices=None))
    results = report.figures["results"]
    names = {(one["backend"], one["operation"], one["size"]) for one in results}
    assert len(names) == len(results)
    assert ("reference", "adam", "large") in names
    assert all(one["gb_per_s"] > 0 and one["fraction_of_copy"] > 0 for one in results)
    assert any("CPU, reference, 1 thread" in line for line in report.lines)
