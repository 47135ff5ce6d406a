"""Rows of a schema alone go the whole way: written, prepared and trained on."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.schema.document import load_schema, to_document
from tests.end_to_end.test_equality import LINEAR
from tests.fork_server import forked

CONFIG = """
[model]
embedding_dim = 4
bottom_mlp = [8]
top_mlp = [16]
[optimizer]
dense_lr = 0.1
rows_lr = 0.1
[train]
batch_size = 100
timeout_s = 60.0
"""


@pytest.mark.parametrize("schema", ["avazu", "movielens"])
def test_generated_rows_are_trained_on(
    run_ranks: Callable[..., CompletedProcess[str]], tmp_path: Path, schema: str
) -> None:
    generate_clicks(8000, tmp_path / "clicks.csv", ids_at_most=200, schema=load_schema(schema))
    settings = PrepareSettings("schema", schema=to_document(load_schema(schema)))
    prepare_clicks([str(tmp_path / "clicks.csv")], tmp_path / "shards", settings, lambda _: None)
    (tmp_path / "run.toml").write_text(CONFIG + f'[kernels]\nlinear = "{LINEAR}"\n')
    overrides = (f"data.path={tmp_path / 'shards'}", f"train.output={tmp_path / 'run'}")
    finished = run_ranks(1, *forked(["bagpipe", "train", tmp_path / "run.toml", *overrides]))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    events = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    (evaluation,) = (event for event in events if event["event"] == "evaluation")
    assert evaluation["auc"] > 0.55
