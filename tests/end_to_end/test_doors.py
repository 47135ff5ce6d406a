"""Every door at once: data of one's own format, trained with a model, row optimizer, placement and policy of one's own.

The examples of docs/extending.md, all in one run. `make test-all` tries each of them by itself and further.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from bagpipe_hpc.tools.inspection.compare import compare
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.end_to_end.test_equality import RunRanks, train
from tests.extending import Example

CONFIG = """
[model]
embedding_dim = 4
[train]
batch_size = 50
epochs = 2
timeout_s = 60.0
[lookahead]
batches = 4
group = 2
[kernels]
linear = "auto"
planner_threads = 1
"""
BY_ROW = ["policy.name=by_row:ByRow", "policy.feature=1"]


def prepare(folder: Path) -> Path:
    """Shards of 600 clicks with three tables, in the format of the page's example."""
    rng = random.Random(1)
    rows = (
        f"{rng.randrange(2)};{rng.random()};{rng.randrange(99)};;{rng.randrange(200)};item {rng.randrange(60)};DE\n"
        for _ in range(600)
    )
    (folder / "clicks.csv").write_text("bought;price;visits;time;user;item;country\n" + "".join(rows))
    settings = PrepareSettings("shop_clicks:ShopClicks", ("separator=;",), min_count=1)
    prepare_clicks([str(folder / "clicks.csv")], folder / "shards", settings, lambda _: None)
    return folder / "shards"


def test_all_that_was_added_trains_as_the_reference(
    example: Callable[[str], Example], run_ranks: RunRanks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers and two trainers end in the reference's bits."""
    example("Source format")
    added = [example(door) for door in ("Model", "Row optimizer", "Placement", "Policy")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(each.folder) for each in added))
    config = tmp_path / "run.toml"
    config.write_text(CONFIG, encoding="utf-8")
    settings = [f"data.path={prepare(tmp_path)}", *(line for each in added[:3] for line in each.overrides), *BY_ROW]
    reference, found = tmp_path / "reference", tmp_path / "found"
    train(run_ranks, 1, config, [[*settings, "train.reference_slices=2", f"train.output={reference}"]], tmp_path)
    verified = ["roles.servers=2", "debug.verify_rows=true", f"train.output={found}"]
    train(run_ranks, 5, config, [[*settings, *verified]], tmp_path)
    assert compare(reference, found).largest() == 0.0
    written = (found / "config.toml").read_text(encoding="utf-8")
    for name in ("factorization_machine:", "my_rows:", "scattered_rows:", "by_row:"):
        assert name in written
