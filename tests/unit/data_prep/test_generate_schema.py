"""Generated rows of any schema are the same for the same seed, are what the schema reads, and can be learnt from."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import data_prep.synthetic.schema_rows
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.storage.shards.reader import ClickShards
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.schema.document import READY, load_schema, to_document

ALL_KINDS = """
[file]
separator = "semicolon"
[columns]
liked = { kind = "label", positive = ["yes"] }
rated = { kind = "label", at_least = 3.5 }
click = { kind = "label" }
x = { kind = "numeric", standardise = true }
y = { kind = "numeric", integer = true, log = true }
cut = { kind = "categorical", values = "decimal", quantiles = 5 }
text = { kind = "categorical" }
code = { kind = "categorical", values = "hex", hash_rows = 50 }
bag = { kind = "multi_hot", weights = ":", separator = "|" }
seen = { kind = "sequence", values = "hex", table = "code", longest = 4, hash_rows = 50 }
weight = { kind = "sample_weight" }
when = { kind = "timestamp", format = "%Y-%m-%d %H:%M:%S" }
who = { kind = "group", values = "text" }
rest = { kind = "unused" }
"""


def silent(_: str) -> None:
    """Progress that nobody reads."""


def generated(path: Path, rows: int, schema: str = "movielens", **options: Any) -> bytes:
    path.unlink(missing_ok=True)
    generate_clicks(rows, path, schema=load_schema(schema), **options)
    return path.read_bytes()


def test_same_seed_same_bytes_and_more_rows_start_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_prep.synthetic.schema_rows, "BLOCK_ROWS", 100)
    path = tmp_path / "clicks.csv"
    some = generated(path, 250)
    assert some.count(b"\n") == 251
    assert generated(path, 250) == some
    assert generated(path, 1000).startswith(some)
    assert generated(path, 250, seed=2) != some
    assert generated(path, 250, zipf=0.5) != some


@pytest.mark.parametrize("schema", [*sorted(path.stem for path in READY.glob("*.toml")), "all kinds", "integer groups"])
def test_generated_rows_are_prepared_by_their_schema_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: str
) -> None:
    monkeypatch.setattr(data_prep.synthetic.schema_rows, "BLOCK_ROWS", 1000)
    if schema in ("all kinds", "integer groups"):
        toml = ALL_KINDS.replace('"group", values = "text"', '"group"') if schema == "integer groups" else ALL_KINDS
        schema = str(tmp_path / "all.toml")
        Path(schema).write_text(toml)
    settings = PrepareSettings("schema", schema=to_document(load_schema(schema)), min_count=1, test_fraction=0.5)
    shards = []
    for name in ("clicks.csv", "clicks.csv.gz", "clicks.parquet"):
        generated(tmp_path / name, 2000, schema)
        manifest = prepare_clicks([str(tmp_path / name)], tmp_path / f"of {name}", settings, silent)
        assert manifest.rows("train") == manifest.rows("test") == 1000
        assert not manifest.skipped_rows
        assert all(0.02 < rate < 0.4 for rate in manifest.label_rates)
        shards.append((tmp_path / f"of {name}" / "train-00000.h5").read_bytes())
    assert shards[0] == shards[1] == shards[2]


FIELDS_IN_QUOTES = """
[file]
separator = "space"
missing = ["0"]
[columns]
"what, and \\" when" = { kind = "timestamp", format = "%d %m %Y %H:%M:%S %z" }
liked = { kind = "label", positive = ["yes sir", "no", "other", "other1"] }
item = { kind = "categorical" }
code = { kind = "categorical", values = "hex" }
bag = { kind = "multi_hot" }
x = { kind = "numeric" }
"""


def test_fields_with_separators_stand_in_quotes(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(FIELDS_IN_QUOTES)
    settings = PrepareSettings("schema", schema=to_document(load_schema(str(tmp_path / "s.toml"))), min_count=1)
    shards = []
    for name in ("clicks.csv", "clicks.parquet"):
        generated(tmp_path / name, 500, str(tmp_path / "s.toml"))
        manifest = prepare_clicks([str(tmp_path / name)], tmp_path / f"of {name}", settings, silent)
        assert 0.1 < manifest.label_rates[0] < 0.4
        shards.append((tmp_path / f"of {name}" / "train-00000.h5").read_bytes())
    assert shards[0] == shards[1]
    with h5py.File(tmp_path / "of clicks.csv" / "train-00000.h5") as shard:
        first, second = shard["timestamp"][:2]
    assert (first, second - first) == (1_700_000_000, 3)
    lines = (tmp_path / "clicks.csv").read_text().splitlines()
    assert lines[0].startswith('"what, and "" when" "liked"')
    assert '"other2"' in lines[1] or '"yes sir"' in lines[1]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[columns]", "quoted = false\n[columns]", r"columns.what, and \" when.name = .* file.quoted is false; set it"),
        ("yes sir", "yes\\nsir", r"columns.liked.positive = 'yes\\nsir': holds an end of line"),
        ("%z", "%s", r"when.format = '%d .*%s': no time can be written so and read again; use seconds"),
    ],
)
def test_fields_that_cannot_be_written_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    (tmp_path / "s.toml").write_text(FIELDS_IN_QUOTES.replace(old, new))
    with pytest.raises(ConfigError, match=said):
        generated(tmp_path / "out" / "clicks.csv", 10, str(tmp_path / "s.toml"))
    assert not (tmp_path / "out").exists()


def test_a_history_says_something_about_the_label(tmp_path: Path) -> None:
    generated(tmp_path / "clicks.csv", 30_000, "movielens")
    settings = PrepareSettings("schema", schema=to_document(load_schema("movielens")))
    manifest = prepare_clicks([str(tmp_path / "clicks.csv")], tmp_path / "out", settings, silent)
    with ClickShards(tmp_path / "out", manifest, "train") as shards:
        label = shards.read_labels(0, shards.rows)
    with h5py.File(tmp_path / "out" / "vocabularies.h5") as file:
        values = file["values/film"][:]
    with h5py.File(tmp_path / "out" / "train-00000.h5") as shard:
        sparse = shard["sparse"][:]
        history = shard["ragged/history"]
        bags = np.split(history["values"][:], history["offsets"][1:-1])
    film = values[sparse[:, 1] - 1]
    known = sparse[:, 1] > 0
    alike = np.array(
        [np.mean(values[bag - 1] % 16 == own % 16) if len(bag) else 0 for bag, own in zip(bags, film, strict=True)]
    )
    assert label[known & (alike > 0.6)].mean() > 2 * label[known & (alike < 0.1)].mean()


@pytest.mark.parametrize("name", ["clicks.parquet", "clicks.xz"])
def test_other_files_are_refused_without_a_schema(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="generate: output = "):
        generate_clicks(10, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
