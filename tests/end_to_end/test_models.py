"""Every model with every optimizer of rows: two trainers end in the reference's bits.

The data has features with any number of ids, one of them with weights, a table that two features share, two labels, and
weights of samples. DIN takes a feature as a sequence that the other models pool.
"""

from pathlib import Path

import pytest

from bagpipe_hpc.config.doors import MODELS, ROW_OPTIMIZERS
from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.test_equality import LINEAR, PLAIN, RunRanks, story, train
from tests.ragged_shards import write_ragged

CONFIG = """
[data]
path = "{shards}"
block_rows = 20
[model]
embedding_dim = 5
[features]
pooling_of = {{ genres = "mean" }}
[train]
batch_size = 21  # 6 batches; the last one has a sample, so that a slice is empty
evaluate = false
timeout_s = 60.0
[lookahead]
batches = 4
group = 2
[kernels]
linear = "{linear}"
"""
OWN_SETTINGS = {
    "dlrm": ["model.bottom_mlp=[6]", "model.top_mlp=[7]"],
    "dlrm_dcnv2": ["model.bottom_mlp=[6]", "model.cross_rank=4", "model.top_mlp=[7]"],
    "wide_deep": ["model.deep_mlp=[8,6]"],
    "deepfm": ["model.deep_mlp=[8,6]"],
    "dcn": ["model.deep_mlp=[8,6]", "model.cross_layers=2"],
    "dcn_v2": ["model.deep_mlp=[8]", "model.structure=parallel"],
    "din": [
        "model.deep_mlp=[8]",
        "model.attention={ history = 'item' }",
        "features.pooling_of={ history = 'sequence', genres = 'mean' }",
    ],
}
assert set(OWN_SETTINGS) == set(MODELS.entries) - {"graphsage"}  # which needs a graph: `test_graph.py`
OPTIMIZERS = tuple(ROW_OPTIMIZERS.entries)
HEART = [(model, OPTIMIZERS[number % len(OPTIMIZERS)]) for number, model in enumerate(OWN_SETTINGS)]
"""Each model once, with optimizers in turn and gradients of weights last; `make test-all` compares half of all pairs: a
model and an optimizer know nothing of each other but the width of a row."""

Case = tuple[str, str]


@pytest.fixture(scope="module")
def config_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_ragged(folder / "shards", samples=106, labels=("click", "conversion"), weighted_samples=True)
    path = folder / "run.toml"
    path.write_text(CONFIG.format(shards=folder / "shards", linear=LINEAR), encoding="utf-8")
    return path


def pairs() -> list[object]:
    """Those of `make test`, then others: each model meets every second optimizer."""
    numbered = [
        (number + which, (model, optimizer))
        for number, model in enumerate(OWN_SETTINGS)
        for which, optimizer in enumerate(OPTIMIZERS)
    ]
    others = [pair for number, pair in numbered if number % 2 and pair not in HEART]
    return [pytest.param(HEART, id="each model"), pytest.param(others, id="others")]


@pytest.mark.slow
@pytest.mark.parametrize("chosen", pairs())
def test_every_model_with_every_row_optimizer_equals_the_reference(
    chosen: list[Case], config_path: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    def runs(folder: str, *more: str) -> list[list[str]]:
        return [
            [
                f"model.name={model}",
                *OWN_SETTINGS[model],
                f"optimizer.rows={optimizer}",
                f"train.output={tmp_path / folder / f'{model}-{optimizer}'}",
                *more,
            ]
            for model, optimizer in chosen
        ]

    train(run_ranks, 1, config_path, runs("references", "train.reference_slices=2", PLAIN), tmp_path)
    by_layers = "train.weight_gradients=late" if chosen is HEART else "train.dense_sums=mpi"  # each waits by layer
    train(run_ranks, 4, config_path, runs("runs", "roles.servers=1", "debug.verify_rows=true", by_layers), tmp_path)
    for model, optimizer in chosen:
        reference, found = (tmp_path / folder / f"{model}-{optimizer}" for folder in ("references", "runs"))
        assert compare(reference, found).largest() == 0.0, (model, optimizer)
        assert story(found) == story(reference), (model, optimizer)
