"""A run that is measured by its beginning goes on, with the same bits, when later batches have many more copies."""

import random
import re
from pathlib import Path

import pytest

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.tools.inspection.compare import compare
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.end_to_end.conftest import CONFIG
from tests.end_to_end.test_equality import RunRanks, overrides, train

SAMPLES, FEATURES = 16, 26
BATCHES = 240
FEW = 5
"""Rows that both trainers use in the first batches. They take turns as homes, so the second one has copies of 3."""
EXPECTED = 3 + 1
"""Copies of a batch: a quarter more."""
LATE = {210: 1, 221: 3, 225: 8, 226: 8}
"""Of these batches, how many samples of the second trainer have all ids from the first: 24 copies, and up to 206."""
SETTINGS = ["roles.servers=1", f"train.batch_size={SAMPLES}", f"train.max_steps={BATCHES}", "train.epochs=1"]
SETTINGS += ["data.shuffle=false", "data.lanes=1", "lookahead.batches=6", "lookahead.group=2", "train.evaluate=false"]
RESERVED = SAMPLES * FEATURES
"""Look-ups of a batch, which bound its copies."""


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of clicks whose slices have rows of their own, but for `FEW`, and in the end but for `LATE`."""
    folder = tmp_path_factory.mktemp("late")
    draw = random.Random(1)
    with (folder / "clicks.tsv").open("w") as file:
        for batch in range(BATCHES * 10 // 8):
            for sample in range(SAMPLES):
                trainer, place = divmod(sample, SAMPLES // 2)
                shared = FEATURES if place < LATE.get(batch, 0) else FEW if place == 0 else 0
                own = [place + 8 * (trainer if feature >= shared else 0) for feature in range(FEATURES)]
                ids = [f"{100 * feature + value:08x}" for feature, value in enumerate(own)]
                integers = [str(draw.randrange(50)) for _ in range(13)]
                file.write("\t".join([str(draw.randrange(2)), *integers, *ids]) + "\n")
    prepare_clicks([str(folder / "clicks.tsv")], folder / "shards", PrepareSettings(), lambda _: None)
    (folder / "late.toml").write_text(CONFIG.format(shards=folder / "shards"))
    return folder / "late.toml"


@pytest.mark.slow
def test_later_batches_may_have_many_more_copies(clicks: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    output, reference = tmp_path / "run", tmp_path / "reference"
    prepared = train(run_ranks, 4, clicks, [overrides("rowwise_adagrad", output, *SETTINGS)], tmp_path)
    train(
        run_ranks, 1, clicks, [overrides("rowwise_adagrad", reference, *SETTINGS, "train.reference_slices=2")], tmp_path
    )
    assert compare(reference, output).largest() == 0.0
    assert "rows live at one trainer each: home (cache.sharing = auto: 2 trainers on CPUs)" in prepared
    assert load_config(output / "config.toml", []).cache.sharing == "home"
    assert "reading 100 batches ahead of the run, to measure the cache" in prepared
    assert f"copies of rows may take up to {2 * (RESERVED - EXPECTED)} slots more" in prepared
    told = (output / "logs" / "oracle-0.log").read_text(encoding="utf-8")
    found = re.search(r"batch (\d+) or a later one has more copies .*: trainers take memory for (\d+) slots more", told)
    assert found
    assert (int(found[1]), int(found[2])) == (min(LATE), 2 * (FEATURES - 2 - EXPECTED))
    assert "cache: 618 of 1090 rows were in use at most" in told
