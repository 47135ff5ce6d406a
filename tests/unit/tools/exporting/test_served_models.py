"""What the loader of an exported model computes, without this package, is what the trainer computed, bit for bit."""

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.config.doors import MODELS
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.shards.manifest import FeatureInfo, TableInfo
from bagpipe_hpc.tools.exporting.export import ExportSettings, export_checkpoint
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.schema.document import load_schema, to_document
from tests.ragged_shards import write_ragged
from tests.unit.tools.exporting.trained_models import batches_of, score, train_small

LINEAR = "onednn" if platform.machine() == "x86_64" else "torch"
ONE_HOT = {
    "features": tuple(FeatureInfo(name, name) for name in ("a", "b", "c")),
    "tables": (TableInfo("a", 23), TableInfo("b", 40), TableInfo("c", 7)),
}
MEANS = "features.pooling_of={ genres = 'mean' }"
TWO_LABELS = {"labels": ("click", "sale"), "weighted_samples": True}
DIN = ["model.name=din", "model.deep_mlp=[8]", "model.attention={ history = 'item' }"]
SEQUENCE = "features.pooling_of={ history = 'sequence', genres = 'mean' }"
OF_SCHEMA = """
[columns]
bought = { kind = "label" }
price = { kind = "numeric", standardise = true }
"größe" = { kind = "numeric", integer = true, log = true }
user = { kind = "categorical", values = "integer" }
item = { kind = "categorical" }
seen = { kind = "sequence", longest = 4, table = "item" }
tags = { kind = "multi_hot", weights = ":" }
when = { kind = "timestamp" }
[derived]
price_group = { kind = "categorical", from = "price", quantiles = 4 }
user_item = { kind = "categorical", cross = ["user", "item"], hash_rows = 50 }
"""
DLRM = ["model.bottom_mlp=[6]", "model.top_mlp=[7]"]
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "dlrm": (ONE_HOT, [*DLRM, "kernels.linear=torch"]),
    "dlrm by onednn": (ONE_HOT, [*DLRM, f"kernels.linear={LINEAR}"]),
    "dlrm with sums, no dense features": ({"dense_features": 0}, [*DLRM, "kernels.linear=torch"]),
    "dlrm_dcnv2": ({}, ["model.name=dlrm_dcnv2", *DLRM, "model.cross_rank=4", MEANS]),
    "wide_deep, several widths": (
        TWO_LABELS,
        ["model.name=wide_deep", "model.deep_mlp=[8,6]", "model.embedding_dim_of={ item = 3, user = 9 }", MEANS],
    ),
    "deepfm": ({}, ["model.name=deepfm", "model.deep_mlp=[8,6]", "features.longest=2", MEANS]),
    "dcn": ({}, ["model.name=dcn", "model.deep_mlp=[8,6]", "model.cross_layers=2"]),
    "dcn_v2": (TWO_LABELS, ["model.name=dcn_v2", "model.deep_mlp=[8]", "model.structure=parallel", MEANS]),
    "din": (TWO_LABELS, [*DIN, SEQUENCE, "model.embedding_dim_of={ user = 3, genre = 16 }", "kernels.linear=torch"]),
    "din by onednn": ({}, [*DIN, SEQUENCE, f"kernels.linear={LINEAR}", "features.longest_of={ history = 3 }"]),
    "bfloat16": (ONE_HOT, [*DLRM, "model.precision=bfloat16"]),
    "rows of a schema": (
        {"schema": OF_SCHEMA},
        [
            "model.name=din",
            "model.deep_mlp=[8]",
            "model.attention={ seen = 'item' }",
            "features.pooling_of={ seen = 'sequence', tags = 'mean' }",
            "model.embedding_dim_of={ tags = 3, user = 9 }",
            f"kernels.linear={LINEAR}",
        ],
    ),
    "an own model": (
        {},
        ["model.name=tests.end_to_end.sequence_model:GatedSequences", "features.pooling_of={ history = 'sequence' }"],
    ),
}
HEART = ["dlrm by onednn", "rows of a schema"]
WAYS: dict[str, dict[str, Any]] = {
    "wide_deep, several widths": {"most_file_bytes": 600},
    "rows of a schema": {"tables": "parquet"},
}
"""How tables are written, where not in one file of safetensors."""
assert {name.split()[0].rstrip(",") for name in CASES} >= set(MODELS.entries) - {"graphsage"}  # a graph is not served


def write_data(folder: Path, seed: int, schema: str = "", **data: Any) -> None:
    """Shards of drawn rows: as they are described, or written, read and prepared by a schema alone."""
    if not schema:
        write_ragged(folder / "shards", seed=seed, **data)
        return
    (folder / "schema.toml").write_text(schema)
    described = load_schema(str(folder / "schema.toml"))
    generate_clicks(300, folder / "rows.csv", seed=seed, ids_at_most=30, schema=described)
    settings = PrepareSettings("schema", schema=to_document(described), test_fraction=0.3)
    prepare_clicks([str(folder / "rows.csv")], folder / "shards", settings, lambda _: None)


@pytest.fixture(scope="module")
def differences(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What trainer and service computed for each case that is asked for, and the folder; scored in one process."""
    folder = tmp_path_factory.mktemp("served")
    wanted = [
        item.callspec.params["case"]
        for item in request.session.items
        if getattr(item, "module", None) is request.module
    ]
    trained, exported, batches = {}, {}, {}
    for number, case in enumerate(wanted):
        data, settings = CASES[case]
        own = folder / str(number)
        own.mkdir()
        write_data(own, number, **data)
        trained[case] = train_small(own, own / "shards", ["model.embedding_dim=5", *settings])
        exported[case] = own / "exported"
        way = WAYS.get(case, {})
        export_checkpoint(ExportSettings(load_checkpoint(own / "run"), exported[case], **way), lambda _: None)
        batches[case] = batches_of(own / "shards", 21)
    scored = score(folder, exported, batches)
    return {case: (trained[case], scored[case], exported[case]) for case in wanted}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case in HEART else pytest.mark.slow) for case in CASES]
)
def test_logits_are_the_trainers(case: str, differences: dict[str, Any]) -> None:
    trained, served, folder = differences[case]
    assert trained.dtype == served.dtype == np.float32
    assert trained.shape == served.shape
    assert trained.tobytes() == served.tobytes()
    assert json.loads((folder / "manifest.json").read_text())["program"]["largest_difference"] == 0.0
    assert any(folder.glob("tables-*.safetensors")) == ("most_file_bytes" in WAYS.get(case, {}))
    assert any(folder.glob("*.parquet")) == ("tables" in WAYS.get(case, {}))
