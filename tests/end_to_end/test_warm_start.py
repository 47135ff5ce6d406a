"""Training that begins with the weights of another, on data with other ids; what is frozen stays as it was."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint, load_checkpoint
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.storage.vocabularies.vocabulary import read_vocabulary
from bagpipe_hpc.tools.exporting.export import ExportSettings, export_checkpoint
from bagpipe_hpc.tools.inspection.compare import compare
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.end_to_end.test_equality import PLAIN, overrides, story, train
from tests.ranks import run_ranks

FROZEN = ('tables.frozen=["C3", "C1*"]', 'model.frozen=["bottom.*"]')
FROZEN_TABLES = {"C3", "C1", *(f"C1{digit}" for digit in range(10))}
CASES = {
    "rows by value, tables and layers frozen": ("rowwise_adam", *FROZEN, "optimizer.dense=Adam"),
    "decay where no gradient comes": ("momentum", *FROZEN, "optimizer.dense_options={ weight_decay = 0.1 }"),
    "rows alone": ("sgd", "train.warm_start_takes=rows"),
    "the dense half alone": ("adagrad", "train.warm_start_takes=dense", "model.frozen=['*']"),
}
STEPS = "train.max_steps=10"


class Runs:
    """A training, and others on later rows that begin with its weights."""

    def __init__(self, folder: Path, config: Path) -> None:
        self._folder = folder
        self.config = config
        self.shards = folder / "later"
        generate_clicks(900, folder / "clicks.tsv", seed=4)
        prepare_clicks([str(folder / "clicks.tsv")], self.shards, PrepareSettings(min_count=1), lambda _: None)
        self.earlier = folder / "earlier"
        earlier = overrides("sgd", self.earlier, PLAIN)
        references = [self.settings(case, self.reference(case), PLAIN, "train.reference_slices=2") for case in CASES]
        train(run_ranks, 1, config, [earlier, *references], folder)

    def reference(self, case: str) -> Path:
        """Output of the reference."""
        return self._folder / f"reference-{list(CASES).index(case)}"

    def settings(self, case: str, output: Path, *more: str, start: Path | None = None) -> list[str]:
        """Those of one run."""
        optimizer, *own = CASES[case]
        begun = f"data.path={self.shards}", f"train.warm_start={start or self.earlier}", STEPS
        return overrides(optimizer, output, *begun, *own, *more)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, short_config: Path) -> Runs:
    return Runs(tmp_path_factory.mktemp("warm"), short_config)


def rows_by_value(checkpoint: Checkpoint, shards: Path) -> dict[str, dict[int, np.ndarray]]:
    """The weights of each value of each table, float32 `[D]`; 0 stands for those without an id of their own."""
    manifest, rows = load_manifest(shards), checkpoint.read_rows(0, checkpoint.manifest.total_rows)
    found, first = {}, 0
    for table in manifest.tables:
        values = [0, *read_vocabulary(shards, manifest, table.name).tolist()]
        found[table.name] = dict(zip(values, rows[first : first + table.rows, :8], strict=True))
        first += table.rows
    return found


def test_it_equals_the_reference(runs: Runs, tmp_path: Path) -> None:
    """On two servers and two trainers: bit for bit, with the same evaluations."""
    outputs = {case: tmp_path / f"run-{number}" for number, case in enumerate(CASES)}
    settings = [
        runs.settings(
            case, out, "roles.servers=2", "lookahead.batches=5", "lookahead.group=2", "debug.verify_rows=true"
        )
        for case, out in outputs.items()
    ]
    train(run_ranks, 5, runs.config, settings, tmp_path)
    for case, output in outputs.items():
        assert compare(runs.reference(case), output).largest() == 0.0, case
        assert story(output) == story(runs.reference(case)), case


@pytest.mark.slow
def test_an_exported_model_is_as_good_a_start_as_its_checkpoint(runs: Runs, tmp_path: Path) -> None:
    """By value, with its own vocabulary: the data that it was trained on is not asked for."""
    chosen = ExportSettings(load_checkpoint(runs.earlier), tmp_path / "exported", onnx=False)
    export_checkpoint(chosen, lambda _: None)
    case = "rows by value, tables and layers frozen"
    settings = runs.settings(case, tmp_path / "run", PLAIN, "train.reference_slices=2", start=tmp_path / "exported")
    said = train(run_ranks, 1, runs.config, [settings], tmp_path)
    assert "rows are trained ones" in said
    assert compare(runs.reference(case), tmp_path / "run").largest() == 0.0


def test_frozen_rows_are_those_of_their_values_and_others_are_trained(runs: Runs, shards: Path) -> None:
    before = rows_by_value(load_checkpoint(runs.earlier), shards)
    after = rows_by_value(load_checkpoint(runs.reference("decay where no gradient comes")), runs.shards)
    for table, rows in after.items():
        shared = [value for value in rows if value in before[table]]
        kept = [np.array_equal(rows[value], before[table][value]) for value in shared]
        assert len(shared) > 1, table
        assert all(kept) == (table in FROZEN_TABLES), table


def test_frozen_layers_keep_their_weights_whatever_the_optimizer_does_without_a_gradient(runs: Runs) -> None:
    before, _ = load_checkpoint(runs.earlier).read_dense()
    for case in ("decay where no gradient comes", "rows by value, tables and layers frozen"):
        after, state = load_checkpoint(runs.reference(case)).read_dense()
        same = {name for name, weight in before.items() if torch.equal(weight, after[name])}
        assert same == {name for name in before if name.startswith("bottom.")}
    assert 0 not in state["state"]


def test_what_is_taken_is_the_checkpoints_and_the_rest_as_the_seed_says(
    runs: Runs, shards: Path, tmp_path: Path
) -> None:
    """Runs in which all is frozen end as they began."""
    frozen = ("model.frozen=['*']", "tables.frozen=['*']", "train.max_steps=2", f"data.path={runs.shards}", PLAIN)
    taken = {part: [f"train.warm_start={runs.earlier}", f"train.warm_start_takes={part}"] for part in ("rows", "dense")}
    taken["nothing"] = []
    chosen = [overrides("adagrad", tmp_path / part, *frozen, *more) for part, more in taken.items()]
    train(run_ranks, 1, runs.config, chosen, tmp_path)
    ends = {part: load_checkpoint(tmp_path / part) for part in taken}
    dense = {part: end.read_dense()[0] for part, end in ends.items()}
    earlier = load_checkpoint(runs.earlier)
    for name, weight in earlier.read_dense()[0].items():
        assert torch.equal(dense["dense"][name], weight), name
        assert torch.equal(dense["rows"][name], dense["nothing"][name]), name
    rows = {part: rows_by_value(end, runs.shards) for part, end in ends.items()}
    before = rows_by_value(earlier, shards)
    for table, first in rows["nothing"].items():
        for value, weights in first.items():
            expected = before[table].get(value, weights)
            assert np.array_equal(rows["rows"][table][value], expected), (table, value)
            assert np.array_equal(rows["dense"][table][value], weights), (table, value)
