"""Generated clicks are the same for the same seed, look like Criteo's, and hold something to learn."""

import errno
import gzip
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bagpipe_hpc.storage.atomic_write
import data_prep.generate
import data_prep.synthetic.criteo_clicks
from bagpipe_hpc.errors import CapacityError, ConfigError
from data_prep.formats.criteo import TABLE_NAMES, Criteo
from data_prep.generate import KINDS, generate_clicks
from data_prep.schema.document import load_schema
from data_prep.synthetic.criteo_clicks import KAGGLE_IDS, MISSING_IDS, MISSING_INTEGERS, TABLE_IDS
from data_prep.synthetic.drawing import BLOCK_ROWS

ROWS = 40_000


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> pa.RecordBatch:
    path = tmp_path_factory.mktemp("generate") / "clicks.tsv"
    generate_clicks(ROWS, path)
    rows, bad = Criteo(None).parse_block(path.read_bytes())
    assert bad == []
    return rows


def generated(path: Path, rows: int, **options: float) -> bytes:
    path.unlink(missing_ok=True)
    generate_clicks(rows, path, **options)  # type: ignore[arg-type]
    return path.read_bytes()


def test_same_seed_same_bytes_and_more_rows_start_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_prep.synthetic.criteo_clicks, "BLOCK_ROWS", 100)
    path = tmp_path / "clicks.tsv"
    some = generated(path, 250)
    assert some.count(b"\n") == 250
    assert generated(path, 250) == some
    assert generated(path, 1000).startswith(some)
    assert generated(path, 1).count(b"\n") == 1
    assert generated(path, 250, seed=2) != some
    assert generated(path, 250, zipf=0.5) != some


def test_compressed_output_holds_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_prep.synthetic.criteo_clicks, "BLOCK_ROWS", 100)
    plain = generated(tmp_path / "clicks.tsv", 250)
    packed = generated(tmp_path / "clicks.tsv.gz", 250)
    assert gzip.decompress(packed) == plain
    assert generated(tmp_path / "again.tsv.gz", 250) == packed


def test_columns_look_like_criteo(clicks: pa.RecordBatch) -> None:
    assert len(clicks) == ROWS
    assert clicks.column("label").to_numpy().mean() == pytest.approx(0.25, abs=0.02)
    for name, ids, missing in zip(TABLE_NAMES, TABLE_IDS, MISSING_IDS, strict=True):
        column = clicks.column(name)
        assert column.null_count / ROWS == pytest.approx(missing, abs=0.02)
        distinct = len(column.drop_null().unique())
        assert distinct <= ids
        assert distinct == ids or ids > 50
    dense = clicks.column("dense").flatten().to_numpy().reshape(ROWS, -1)
    assert ((dense == 0).mean(axis=0) >= np.array(MISSING_INTEGERS) - 0.02).all()


def test_a_larger_exponent_makes_popular_ids_more_popular(tmp_path: Path) -> None:
    shares = []
    for zipf in (0.0, 1.05, 1.5):
        rows, _ = Criteo(None).parse_block(generated(tmp_path / "clicks.tsv", 5000, zipf=zipf))
        counts = np.unique(rows.column("C1").to_numpy(), return_counts=True)[1]
        shares.append(counts.max() / 5000)
    assert shares[0] < 0.01
    assert 0.1 < shares[1] < shares[2]


def test_tables_are_cut_as_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_prep.synthetic.criteo_clicks, "BLOCK_ROWS", 5000)
    rows, _ = Criteo(None).parse_block(generated(tmp_path / "clicks.tsv", 5000, zipf=0.0, ids_at_most=40))
    for name, ids in zip(TABLE_NAMES, KAGGLE_IDS, strict=True):
        assert len(rows.column(name).drop_null().unique()) == min(ids, 40)


def test_labels_can_be_learned(clicks: pa.RecordBatch) -> None:
    """Even a sum of smoothed log-odds of each value, counted on 9 rows of 10, ranks the rest well above chance."""
    label = clicks.column("label").to_numpy().astype(np.float64)
    train = ROWS * 9 // 10
    base = label[:train].mean()
    score = np.zeros(ROWS)
    values = [clicks.column(name).fill_null(0).to_numpy() for name in TABLE_NAMES]
    for column in (*values, *clicks.column("dense").flatten().to_numpy().reshape(ROWS, -1).T):
        codes = np.unique(column, return_inverse=True)[1]
        seen = np.bincount(codes[:train], minlength=codes.max() + 1)
        clicked = np.bincount(codes[:train], label[:train], minlength=codes.max() + 1)
        rate = (clicked + 20 * base) / (seen + 20)
        score += np.log(rate / (1 - rate))[codes]
    assert auc(score[train:], label[train:]) > 0.72


def auc(score: np.ndarray, label: np.ndarray) -> float:
    """Share of pairs of a click and a non-click that the score puts in order."""
    ranks = np.argsort(np.argsort(score))
    positives = label == 1
    first = positives.sum() * (positives.sum() - 1) / 2
    return float((ranks[positives].sum() - first) / (positives.sum() * (~positives).sum()))


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"rows": 0}, "rows = 0: use 1 or more"),
        ({"seed": -1}, "seed = -1: use 0 or more"),
        ({"zipf": -0.5}, "zipf = -0.5"),
        ({"ids_at_most": 0}, "ids_at_most = 0: use 1 or more"),
        ({"zipf": float("nan")}, "zipf = nan"),
        ({"kind": "films"}, "kind = 'films': use one of criteo, sequences"),
        ({"output": Path("clicks.tsv.zst")}, "ends in .gz, .tsv or .csv"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, wrong: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"generate: .*{problem}"):
        generate_clicks(**({"rows": 5, "output": tmp_path / "clicks.tsv"} | wrong))  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_what_is_there_already_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine.tsv"
    mine.write_text("real clicks")
    (tmp_path / "link.tsv").symlink_to("nowhere")
    for name in ("mine.tsv", "link.tsv"):
        with pytest.raises(ConfigError, match=rf"{name}': is there already; remove it, or use another name"):
            generate_clicks(5, tmp_path / name)
    assert mine.read_text() == "real clicks"
    with pytest.raises(ConfigError, match="is a folder; name a file in it"):
        generate_clicks(5, tmp_path)
    with pytest.raises(ConfigError, match=r"clicks.tsv: cannot be written \(File exists\); check the path"):
        generate_clicks(5, mine / "clicks.tsv")


def test_what_another_has_made_meanwhile_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that write to one name the second to end says so: users would take its rows for theirs."""
    output = tmp_path / "clicks.tsv"
    draw, layout = KINDS["criteo"]

    def draw_slowly(*arguments: Any) -> Iterator[pa.Table]:
        output.write_text("of another")
        yield from draw(*arguments)

    monkeypatch.setitem(KINDS, "criteo", (draw_slowly, layout))
    with pytest.raises(ConfigError, match=r"clicks\.tsv': was made by somebody else meanwhile"):
        generate_clicks(5, output)
    assert [path.name for path in tmp_path.iterdir()] == ["clicks.tsv"]
    assert output.read_text() == "of another"


@pytest.mark.parametrize("name", ["clicks.tsv", "clicks.tsv.gz"])
@pytest.mark.parametrize(
    ("number", "kind", "problem"),
    [
        (errno.ENOSPC, CapacityError, "the disk is full; free some space"),
        (errno.ENAMETOOLONG, ConfigError, r"cannot be written \(File name too long: use a shorter one\)"),
        (errno.EROFS, ConfigError, r"cannot be written \(Read-only file system\)"),
        (errno.EFBIG, ConfigError, r"cannot be written \(File too large: ulimit -f, or the file system, limits it\)"),
    ],
)
def test_a_disk_that_refuses_is_named_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int, kind: type[Exception], problem: str
) -> None:
    def refuse(_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(bagpipe_hpc.storage.atomic_write, "fsync", refuse)
    with pytest.raises(kind, match=rf"{name}: {problem}"):
        generate_clicks(5, tmp_path / name)
    assert not list(tmp_path.iterdir())


def generate_with(free: int, path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_prep.generate, "shutil", SimpleNamespace(disk_usage=lambda _: SimpleNamespace(free=free)))
    schema = load_schema("avazu") if path.suffix == ".parquet" else None
    generate_clicks(rows, path, schema=schema)


@pytest.mark.parametrize("name", ["clicks.tsv", "clicks.tsv.gz", "clicks.parquet"])
def test_rows_that_cannot_fit_are_refused_by_the_size_of_the_first_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """And what fits is written, even on a disk that compresses text to a quarter."""
    rows = 2 * BLOCK_ROWS
    generate_with(1 << 40, tmp_path / name, rows, monkeypatch)
    size = (tmp_path / name).stat().st_size
    (tmp_path / name).unlink()
    said = rf"{name}: about (\S+) MB are needed for {rows:,} rows, .* and 300\.0 kB are free; write fewer"
    with pytest.raises(CapacityError, match=said) as refused:
        generate_with(300_000, tmp_path / name, rows, monkeypatch)
    assert float(re.findall(said, str(refused.value))[0]) == pytest.approx(size / 1e6, rel=0.02)
    assert not list(tmp_path.iterdir())
    generate_with(size // 4, tmp_path / name, rows, monkeypatch)
    assert (tmp_path / name).stat().st_size == size


def test_more_rows_than_any_disk_has_room_for_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(
        CapacityError, match=r"clicks\.tsv: about 2\S+ EB are needed for 1,000,000,000,000,000,000 rows"
    ):
        generate_clicks(10**18, tmp_path / "clicks.tsv")
    assert not list(tmp_path.iterdir())


def test_the_folder_of_the_output_is_made(tmp_path: Path) -> None:
    generate_clicks(5, tmp_path / "new" / "clicks.tsv")
    assert len((tmp_path / "new" / "clicks.tsv").read_text().splitlines()) == 5
