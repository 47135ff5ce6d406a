"""Generated histories are the same for the same seed, are what their format reads, and hold something to learn."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import data_prep.synthetic.sequences
from bagpipe_hpc.storage.shards.entries import FeatureInfo
from bagpipe_hpc.storage.shards.reader import ClickShards
from data_prep.formats.sequences import LAYOUT, Sequences
from data_prep.formats.value_lists import list_values
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.synthetic.sequences import GENRES, ITEMS, LONGEST_HISTORY, NEWEST_ITEMS, USERS

ROWS = 30_000


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pa.RecordBatch:
    path = tmp_path_factory.mktemp("generate") / "sequences.csv"
    generate_clicks(ROWS, path, kind="sequences")
    header, _, text = path.read_bytes().partition(b"\n")
    assert LAYOUT.is_header(header.decode())
    found, bad = Sequences(None).parse_block(text)
    assert bad == []
    return found


def generated(path: Path, rows: int, **options: float) -> bytes:
    path.unlink(missing_ok=True)
    generate_clicks(rows, path, kind="sequences", **options)  # type: ignore[arg-type]
    return path.read_bytes()


def test_same_seed_same_bytes_and_more_rows_start_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_prep.synthetic.sequences, "BLOCK_ROWS", 100)
    path = tmp_path / "sequences.csv"
    some = generated(path, 250)
    assert some.count(b"\n") == 251
    assert generated(path, 250) == some
    assert generated(path, 1000).startswith(some)
    assert generated(path, 250, seed=2) != some
    assert generated(path, 250, zipf=0.5) != some


def test_columns_are_as_they_are_described(rows: pa.RecordBatch) -> None:
    assert len(rows) == ROWS
    click, buy = np.array(rows.column("label").to_pylist()).T
    assert click.mean() == pytest.approx(0.25, abs=0.02)
    assert buy.mean() == pytest.approx(0.05, abs=0.01)
    assert not (buy > click).any()
    lengths = np.array([len(bag) for bag in rows.column("history").to_pylist()])
    assert (lengths == 0).mean() == pytest.approx(0.15, abs=0.01)
    assert (int(lengths.max()), int(lengths[lengths > 0].mean())) == (LONGEST_HISTORY, 11)
    items = np.concatenate([rows.column("item").to_numpy(), list_values(rows.column("history")).to_numpy()])
    assert 0 <= items.min() <= items.max() < ITEMS
    assert 0 <= rows.column("user").to_numpy().min() <= rows.column("user").to_numpy().max() < USERS
    genres = rows.column("genres").to_pylist()
    assert len({pair["value"] for bag in genres for pair in bag}) == GENRES
    sums = np.array([sum(pair["weight"] for pair in bag) for bag in genres])
    assert np.allclose(sums[sums > 0], 1)
    assert (sums == 0).mean() == pytest.approx(0.05, abs=0.01)
    weights = rows.column("weight").to_numpy()
    assert (weights.min(), weights.max()) == (0.5, 2.0)


def test_popular_ids_are_more_popular_with_a_larger_exponent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_prep.synthetic.sequences, "BLOCK_ROWS", 5000)

    def most_frequent(zipf: float) -> int:
        text = generated(tmp_path / "sequences.csv", 5000, zipf=zipf).partition(b"\n")[2]
        return int(np.bincount(Sequences(None).parse_block(text)[0].column("item").to_numpy()).max())

    assert most_frequent(1.2) > 3 * most_frequent(0.6) > 3


@pytest.mark.parametrize("most", [1, 3, 500])
def test_tables_are_cut_as_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """To fewer items than genres, too."""
    monkeypatch.setattr(data_prep.synthetic.sequences, "BLOCK_ROWS", 3000)
    text = generated(tmp_path / "sequences.csv", 3000, ids_at_most=most).partition(b"\n")[2]
    found, bad = Sequences(None).parse_block(text)
    assert bad == []
    assert found.column("user").to_numpy().max() < most
    assert list_values(found.column("history")).to_numpy().max() < most


def test_the_newest_items_tell_of_clicks(rows: pa.RecordBatch) -> None:
    """Whoever saw an item among the newest of the history clicks more often; one seen long ago tells little of that."""
    click = np.array(rows.column("label").to_pylist())[:, 0]
    item = rows.column("item").to_pylist()
    bags = rows.column("history").to_pylist()
    newest = np.array([found in bag[-NEWEST_ITEMS:] for found, bag in zip(item, bags, strict=True)])
    older = np.array([found in bag[:-NEWEST_ITEMS] for found, bag in zip(item, bags, strict=True)]) & ~newest
    other = np.array([len(bag) > 0 for bag in bags]) & ~newest & ~older
    assert click[newest].mean() > 1.4 * click[other].mean()
    assert click[newest].mean() > 1.2 * click[older].mean()


def test_the_format_of_the_package_prepares_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_prep.synthetic.sequences, "BLOCK_ROWS", 2000)
    generate_clicks(2000, tmp_path / "sequences.csv.gz", kind="sequences")
    settings = PrepareSettings("sequences", rows_per_shard=700)
    manifest = prepare_clicks([str(tmp_path / "sequences.csv.gz")], tmp_path / "out", settings, lambda _: None)
    assert [table.name for table in manifest.tables] == ["user", "item", "genre"]
    assert manifest.features == (
        FeatureInfo("user", "user"),
        FeatureInfo("item", "item"),
        FeatureInfo("history", "item", ragged=True, longest=LONGEST_HISTORY),
        FeatureInfo("genres", "genre", ragged=True, weighted=True, longest=2),
    )
    assert (manifest.labels, manifest.weighted_samples, manifest.dense_features) == (("click", "buy"), True, 2)
    with ClickShards(tmp_path / "out", manifest, "train", (0, 0, 5, 0)) as shards:
        assert shards.rows == 1800
        assert shards.read_look_ups(0, 1800).lengths.max(axis=0).tolist() == [1, 1, 5, 2]
