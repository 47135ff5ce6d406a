"""Worlds of many trainers: what takes a grid, and what begins with 128 of them, ends with the reference's bits as well.

`MANY_TRAINERS=256 python -m pytest -m slow tests/end_to_end/test_many_trainers.py -k hundreds` takes another number in
the place of 130: 256 need 19 GB and six minutes of two cores.
"""

import os
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import psutil
import pytest

from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.test_equality import RunRanks, train
from tests.ranks import run_ranks as run_urgent_ranks

pytestmark = pytest.mark.slow

BY_MESSAGES, OVER_A_GRID = ("train.dense_sums=mpi", "cache.exchange=direct"), ("cache.exchange=grid",)
LATE = "train.weight_gradients=late"
FIFTEEN = {
    "over a grid": [*OVER_A_GRID, "optimizer.rows=rowwise_adagrad"],
    "by messages": [*BY_MESSAGES, LATE, "optimizer.rows=ftrl", "lookahead.batches=2", "lookahead.group=1"],
    "most slices empty": [*OVER_A_GRID, LATE, "optimizer.rows=adam", "train.batch_size=20"],
    "replicated": ["cache.sharing=replicated", "optimizer.rows=momentum"],
    "by Horovod, clipped": [
        "train.dense_sums=horovod",
        "optimizer.dense_clip_norm=0.3",
        "optimizer.rows_clip_norm=0.004",
    ],
    "16 bits, lanes": [*OVER_A_GRID, "train.row_sums=float16", "data.lanes=5", "data.block_rows=32"],
    "slipstream": ["policy.name=slipstream"],
    "hotline": ["policy.name=hotline", "policy.hot_rows=2000", "policy.learning_batches=2", "policy.refresh_batches=4"],
}
"""Dense sums go over a grid, batches have 300 samples, and rows SGD, where a case does not say otherwise."""
HUNDREDS = {
    "one home": ["optimizer.rows=rowwise_adagrad", "train.checkpoint_every_steps=4", "roles.transfers=messages"]
}
"""With 128 trainers and more rows take a grid, and dense sums three levels."""
SERVERS = 3
OF_RANKS = (f"roles.servers={SERVERS}", "debug.verify_rows=true")
"""What a reference does not have."""
STEPS, SAVED_AT = 8, 4
"""An epoch has seven batches of 300, the last one of 21 samples."""
MB_OF_A_TRAINER, MB_BESIDES = 70, 1000
"""Measured where ranks are forks: 260 of them took 18.5 GB at most."""
LIMIT_S = 900
LESS_URGENT = ("nice", "-n", "15")
"""So many ranks would leave nothing of the cores to the tests beside them."""


@pytest.fixture
def run_ranks() -> RunRanks:
    """`tests.ranks.run_ranks`, at a lower priority where there are several."""

    def run(count: int, *command: str | Path, **options: Any) -> CompletedProcess[str]:
        urgency = LESS_URGENT if count > 1 else ()
        return run_urgent_ranks(count, *urgency, *command, **options)

    return run


@pytest.fixture
def config(config_path: Path, tmp_path: Path) -> Path:
    """What all runs here have, where a case does not say otherwise."""
    text = config_path.read_text().replace("batch_size = 70", 'batch_size = 300\ndense_sums = "grid"\n#')
    path = tmp_path / "many.toml"
    path.write_text(text.replace("[optimizer]", '[optimizer]\nrows = "sgd"'))
    return path


def settings_of(case: list[str], output: Path, *more: str) -> list[str]:
    """Of one run."""
    ends = ("train.deterministic=true", "train.evaluate=false", "train.timeout_s=600", f"train.max_steps={STEPS}")
    return [*ends, f"train.output={output}", *case, *more]


@pytest.mark.parametrize(
    ("trainers", "cases"),
    [(15, FIFTEEN), (int(os.environ.get("MANY_TRAINERS", "130")), HUNDREDS)],
    ids=["fifteen", "hundreds"],
)
def test_a_world_of_many_ends_with_the_references_bits(
    trainers: int, cases: dict[str, list[str]], config: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """Ranks are dealt out to four hosts. Three trainers go on where hundreds have saved rows with one home."""
    _require_memory(trainers)
    alone = [settings_of(case, tmp_path / f"{name} alone", _slices(trainers)) for name, case in cases.items()]
    train(run_ranks, 1, config, alone, tmp_path)
    runs = [settings_of(case, tmp_path / name, *OF_RANKS) for name, case in cases.items()]
    ranks = 1 + SERVERS + trainers
    hosts = [str(rank % 4) for rank in range(ranks)]
    told = train(run_ranks, ranks, config, runs, tmp_path, "--hosts", *hosts, limit_s=LIMIT_S)
    if cases is HUNDREDS:
        assert "rows between trainers: over a grid of " in told
        begun = tmp_path / "one home" / "checkpoints" / f"step-{SAVED_AT:08d}"
        goes_on = [*cases["one home"], f"train.resume={begun}"]
        train(run_ranks, 1, config, [settings_of(goes_on, tmp_path / "on alone", _slices(3))], tmp_path)
        train(run_ranks, 1 + SERVERS + 3, config, [settings_of(goes_on, tmp_path / "on", *OF_RANKS)], tmp_path)
    compared = [*cases, *(["on"] if cases is HUNDREDS else [])]
    found = {name: compare(tmp_path / f"{name} alone", tmp_path / name).largest() for name in compared}
    assert found == dict.fromkeys(compared, 0.0)


def _slices(trainers: int) -> str:
    """What a reference adds up as so many trainers do."""
    return f"train.reference_slices={trainers}"


def _require_memory(trainers: int) -> None:
    """Skip where the ranks would not have room: then the system ends programs as it likes."""
    needed, free = MB_BESIDES + trainers * MB_OF_A_TRAINER, psutil.virtual_memory().available >> 20
    if free < needed:
        pytest.skip(f"{trainers} trainers need {needed} MB of memory, and {free} MB are free")
