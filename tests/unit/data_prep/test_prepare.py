"""Prepared shards hold what a plain reading of the text gives; and what is refused."""

import gzip
import lzma
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bagpipe_hpc.storage.shards.entries
import data_prep.prepare
import data_prep.recorded
from bagpipe_hpc.errors import ConfigError, DataError
from bagpipe_hpc.kernels.shared_library import is_built
from bagpipe_hpc.storage.shards.check import verify_shards
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.storage.vocabularies.vocabulary import read_vocabulary
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.click_rows import random_rows
from tests.drawing import share_of
from tests.unit.data_prep.plain_preparation import (
    BACKENDS,
    KilledError,
    assert_counts,
    assert_holds,
    kill_at,
    prepare_naively,
    read_all,
    silent,
    small_blocks,
    write_text,
)


@settings(max_examples=share_of(6), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 60),
    seed=st.integers(0, 10_000),
    min_count=st.integers(1, 4),
    rows_per_shard=st.integers(7, 80),
    test_fraction=st.sampled_from([0.0, 0.1, 0.35]),
    compression=st.sampled_from(["lzf", "gzip", "none"]),
    checksums=st.booleans(),
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_shards_hold_what_a_plain_reading_gives(
    tmp_path_factory: pytest.TempPathFactory,
    backend: str,
    rows: int,
    seed: int,
    min_count: int,
    rows_per_shard: int,
    test_fraction: float,
    compression: str,
    checksums: bool,
) -> None:
    folder = tmp_path_factory.mktemp("prepare")
    lines = random_rows(rows, seed)
    halves = [half for half in (lines[: rows // 2], lines[rows // 2 :]) if half]
    inputs = [write_text(folder / f"day_{number}", half) for number, half in enumerate(halves)]
    chosen = PrepareSettings(
        min_count=min_count,
        rows_per_shard=rows_per_shard,
        test_fraction=test_fraction,
        compression=compression,
        chunk_checksums=checksums,
        backend=backend,
    )
    manifest = prepare_clicks(inputs, folder / "out", chosen, silent)
    naive = prepare_naively(lines, min_count, test_fraction)
    assert_holds(folder / "out", manifest, naive)
    shard_rows = [shard.rows for shard in manifest.train]
    assert all(size == rows_per_shard for size in shard_rows[:-1])
    assert manifest.label_rate == pytest.approx(sum(naive.labels) / rows)


@pytest.mark.parametrize(
    "compress", [gzip.compress, lzma.compress, lambda text: pa.Codec("zstd").compress(text, asbytes=True)]
)
def test_compressed_input(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    lines = random_rows(50, seed=3)
    (tmp_path / "clicks").write_bytes(compress("\r\n".join(lines).encode()))
    manifest = prepare_clicks([str(tmp_path / "clicks")], tmp_path / "out", PrepareSettings(), silent)
    assert_holds(tmp_path / "out", manifest, prepare_naively(lines, 2, 0.1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_hashed_ids(tmp_path: Path, backend: str) -> None:
    lines = random_rows(40, seed=5)
    source = write_text(tmp_path / "clicks", lines)
    chosen = PrepareSettings(max_rows_per_table=5, backend=backend)
    manifest = prepare_clicks([source], tmp_path / "out", chosen, silent)
    assert manifest.table_rows == (5,) * 26
    assert manifest.settings is not None
    assert "fmix64" in manifest.settings["ids"]
    assert manifest.hashed_tables == tuple(f"C{table}" for table in range(1, 27))
    with pytest.raises(DataError, match="the values of table C7 were hashed"):
        read_vocabulary(tmp_path / "out", manifest, "C7")
    _, _, sparse = read_all(tmp_path / "out", manifest, "train")
    missing = np.array([[not field for field in line.split("\t")[14:]] for line in lines[: len(sparse)]])
    assert np.array_equal(sparse == 0, missing)
    assert_counts(tmp_path / "out", manifest, sparse)


@pytest.mark.parametrize("killed_at", ["", "built"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_table_that_would_be_larger_than_allowed_is_hashed_and_no_other(
    tmp_path: Path, backend: str, killed_at: str
) -> None:
    lines = [line.split("\t") for line in random_rows(60, seed=5)]
    for number, fields in enumerate(lines):
        fields[14] = "" if number < 3 else f"{number % 9:x}"  # 9 values: 10 rows
        fields[15] = f"{number % 10:x}"  # 10 values: 11 rows would be needed
        fields[16:] = ["ff"] * 24
        fields[17] = f"{number:x}"
    rows = ["\t".join(fields) for fields in lines]
    source = write_text(tmp_path / "clicks", rows)
    chosen = PrepareSettings(max_rows_per_table=10, backend=backend)
    if killed_at:
        with pytest.raises(KilledError):
            prepare_clicks([source], tmp_path / "out", chosen, kill_at(killed_at))
    manifest = prepare_clicks([source], tmp_path / "out", chosen, silent)
    assert manifest.table_rows == (10, 10, 2, 10, *[2] * 22)
    assert manifest.hashed_tables == ("C2", "C4")
    assert load_manifest(tmp_path / "out") == manifest
    naive = prepare_naively(rows, 1, 0.1)
    _, _, sparse = read_all(tmp_path / "out", manifest, "train")
    for table in (0, 2, *range(4, 26)):
        assert sparse[:, table].tolist() == [ids[table] for ids in naive.sparse[: len(sparse)]]
        assert read_vocabulary(tmp_path / "out", manifest, f"C{table + 1}").tolist() == naive.values[table]
    assert sparse[:, [1, 3]].min() >= 1
    assert_counts(tmp_path / "out", manifest, sparse)


@pytest.mark.parametrize(("spare", "dtype"), [(-1, "int64"), (0, "int32")])
@pytest.mark.parametrize("backend", BACKENDS)
def test_ids_that_need_64_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, spare: int, dtype: str
) -> None:
    """Those of the largest table decide, in shards and for samples that are encoded alone."""
    lines = random_rows(30, seed=5)
    naive = prepare_naively(lines, 2, 0.1)
    monkeypatch.setattr(bagpipe_hpc.storage.shards.entries, "_INT32_ROWS", max(naive.table_rows) + spare)
    source = write_text(tmp_path / "clicks", lines)
    manifest = prepare_clicks([source], tmp_path / "out", PrepareSettings(backend=backend), silent)
    assert manifest.sparse_dtype == dtype
    verify_shards(tmp_path / "out", manifest, "quick")
    assert_holds(tmp_path / "out", manifest, naive)
    recorded = data_prep.recorded.load_recorded(tmp_path / "out")
    batch, _ = recorded.source_format.parse_block("".join(f"{line}\n" for line in lines).encode())
    assert recorded.encoder(backend).encode([batch]).sparse.dtype == dtype


def test_the_vocabulary_comes_from_training_rows_only(tmp_path: Path) -> None:
    train = random_rows(20, seed=1)
    unseen = "\t".join(["1"] + ["0"] * 13 + ["deadbeef"] * 26)
    source = write_text(tmp_path / "clicks", train + [unseen] * 20)
    manifest = prepare_clicks([source], tmp_path / "out", PrepareSettings(test_fraction=0.5), silent)
    _, _, sparse = read_all(tmp_path / "out", manifest, "test")
    assert sparse.shape == (20, 26)
    assert not sparse.any()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("compress", "range_bytes"),
    [
        (bytes, 3000),
        (bytes, 1 << 20),
        (gzip.compress, 1 << 20),
        (lzma.compress, 1 << 20),
    ],
)
@pytest.mark.parametrize("line", [1, 57, 100])
def test_a_bad_row_stops_with_file_and_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compress: Callable[[bytes], bytes],
    line: int,
    range_bytes: int,
    backend: str,
) -> None:
    small_blocks(monkeypatch, 30, range_bytes)
    good = random_rows(100, seed=2)
    bad = [*good]
    bad[line - 1] = "7" + bad[line - 1][1:]
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, lines in zip(paths, (good, bad), strict=True):
        path.write_bytes(compress("\n".join(lines).encode()))
    with pytest.raises(DataError, match=rf"/b:{line}: label is '7' instead of 0 or 1; .*--skip-bad-rows"):
        prepare_clicks([str(path) for path in paths], tmp_path / "out", PrepareSettings(backend=backend), silent)
    with pytest.raises(DataError, match="not finished; run bagpipe prepare again to resume"):
        load_manifest(tmp_path / "out")


@pytest.mark.parametrize("range_bytes", [1000, 5000, 1 << 20])
def test_allowed_bad_rows_are_left_out_and_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, range_bytes: int
) -> None:
    small_blocks(monkeypatch, 30, range_bytes)
    lines = random_rows(100, seed=2)
    broken = [*lines]
    for number in (10, 20, 95):
        broken[number] = "broken"
    source = write_text(tmp_path / "clicks", broken)
    with pytest.raises(DataError, match=r"clicks:96: .* \(more than the 2 malformed rows that are allowed\)"):
        prepare_clicks([source], tmp_path / "out", PrepareSettings(skip_bad_rows=2), silent)
    # A larger limit goes on where the smaller one stopped.
    manifest = prepare_clicks([source], tmp_path / "out", PrepareSettings(skip_bad_rows=3), silent)
    good = [line for line in broken if line != "broken"]
    assert_holds(tmp_path / "out", manifest, prepare_naively(good, 2, 0.1))
    reason = "1 tab-separated fields instead of 40"
    assert manifest.skipped_rows == tuple(f"{source}:{line}: {reason}" for line in (11, 21, 96))


@pytest.mark.skipif(not is_built("click_text"), reason="native code was not built")
@pytest.mark.parametrize(("compression", "hashed"), [("lzf", None), ("gzip", None), ("none", None), ("lzf", 1000)])
def test_both_backends_write_the_same_samples(tmp_path: Path, compression: str, hashed: int | None) -> None:
    generate_clicks(12_000, tmp_path / "clicks")
    read = []
    for backend in ("reference", "native"):
        chosen = PrepareSettings(
            max_rows_per_table=hashed, rows_per_shard=9000, compression=compression, backend=backend
        )
        manifest = prepare_clicks([str(tmp_path / "clicks")], tmp_path / backend, chosen, silent)
        read.append([read_all(tmp_path / backend, manifest, split) for split in ("train", "test")])
        read[-1].append([(shard.file, shard.rows, shard.positives) for shard in manifest.train + manifest.test])
        read[-1] += [manifest.tables, manifest.hashed_tables]
    for reference, native in zip(*read[:2], strict=True):
        for expected, found in zip(reference, native, strict=True):
            assert np.array_equal(expected, found)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dense", [True, False])
def test_buckets_of_integers_are_tables_in_front_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, dense: bool
) -> None:
    """Values and all else are those of the plain format; ids of buckets are counted like others."""
    small_blocks(monkeypatch, 20)
    lines, bucket = random_rows(100, 3), {"": None, "-2": 0, "0": 1, "1": 2, "17": 11, "123456": 140}
    path = write_text(tmp_path / "clicks", lines)
    chosen = PrepareSettings(
        "criteo_buckets", (f"dense={str(dense).lower()}",), min_count=14, test_fraction=0.2, backend=backend
    )
    manifest = prepare_clicks([path], tmp_path / "out", chosen, silent)
    naive = prepare_naively(lines, 14, 0.2)
    assert manifest.dense_features == (13 if dense else 0)
    assert manifest.settings is not None
    assert manifest.settings["format_options"] == {"dense": dense}
    assert "floor(log(x)^2)" in manifest.settings["buckets"]
    assert [table.name for table in manifest.tables[:14]] == [f"I{number}" for number in range(1, 14)] + ["C1"]
    read = [read_all(tmp_path / "out", manifest, split) for split in ("train", "test")]
    sparse = np.concatenate([ids for _, _, ids in read])
    assert sparse[:, 13:].tolist() == naive.sparse
    if dense:
        np.testing.assert_allclose(np.concatenate([found for _, found, _ in read]), naive.dense, rtol=1e-6)
    for number in range(13):
        values = [bucket[line.split("\t")[1 + number]] for line in lines]
        counts = Counter(value for value in values[:80] if value is not None)
        kept = sorted((value for value in counts if counts[value] >= 14), key=lambda value: (-counts[value], value))
        assert read_vocabulary(tmp_path / "out", manifest, f"I{number + 1}").tolist() == kept
        assert sparse[:, number].tolist() == [kept.index(value) + 1 if value in kept else 0 for value in values]


@pytest.mark.usefixtures("nothing_built")
def test_native_code_that_was_not_built_is_refused(tmp_path: Path) -> None:
    source = write_text(tmp_path / "clicks", random_rows(30, seed=4))
    with pytest.raises(ConfigError, match=r"prepare: backend = 'native': .*make setup.*--backend reference"):
        prepare_clicks([source], tmp_path / "out", PrepareSettings(backend="native"), silent)
    manifest = prepare_clicks([source], tmp_path / "out", PrepareSettings(), silent)
    assert manifest.rows("train") == 27


def test_rows_that_are_too_few_for_tests_are_noted(tmp_path: Path) -> None:
    source = write_text(tmp_path / "clicks", random_rows(3, seed=4))
    progress: list[str] = []
    prepare_clicks([source], tmp_path / "out", PrepareSettings(), progress.append)
    assert "note: no row is left for tests: 0.1 of 3 rows is less than one" in progress


def test_a_folder_of_other_files_is_left_alone(tmp_path: Path) -> None:
    source = write_text(tmp_path / "clicks", random_rows(3, seed=4))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    with pytest.raises(DataError, match="not empty and holds no preparation"):
        prepare_clicks([source], tmp_path / "out", PrepareSettings(), silent)


def test_an_output_that_is_a_file(tmp_path: Path) -> None:
    source = write_text(tmp_path / "clicks", random_rows(3, seed=4))
    with pytest.raises(DataError, match=r"clicks: cannot be written .*; check the path"):
        prepare_clicks([source], tmp_path / "clicks", PrepareSettings(), silent)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("label", ["00", "01"])
def test_a_label_of_two_digits_is_a_bad_row(tmp_path: Path, label: str, backend: str) -> None:
    lines = random_rows(5, seed=2)
    lines[3] = label + lines[3][1:]
    source = write_text(tmp_path / "clicks", lines)
    with pytest.raises(DataError, match=f"clicks:4: label is '{label}' instead of 0 or 1"):
        prepare_clicks([source], tmp_path / "out", PrepareSettings(backend=backend), silent)


def test_an_input_that_changes_while_it_is_read(tmp_path: Path) -> None:
    lines = random_rows(30, seed=2)
    source = write_text(tmp_path / "clicks", lines)

    def append(_: str) -> None:
        with (tmp_path / "clicks").open("a") as clicks:
            clicks.write(lines[0] + "\n")

    with pytest.raises(DataError, match=r"clicks: changed while it was read; remove .*out and run"):
        prepare_clicks([source], tmp_path / "out", PrepareSettings(), append)
    with pytest.raises(DataError, match="an unfinished preparation of other inputs"):
        prepare_clicks([source], tmp_path / "out", PrepareSettings(), silent)


def test_an_input_that_goes_while_it_is_read(tmp_path: Path) -> None:
    source = write_text(tmp_path / "clicks", random_rows(30, seed=2))
    with pytest.raises(DataError, match=r"clicks: changed while it was read; remove .*out and run"):
        prepare_clicks([source], tmp_path / "out", PrepareSettings(), lambda _: Path(source).unlink(missing_ok=True))


@pytest.mark.parametrize("text", ["\n\n", "broken\n"])
def test_inputs_without_a_good_row(tmp_path: Path, text: str) -> None:
    (tmp_path / "clicks").write_text(text)
    with pytest.raises(DataError, match="clicks: 0 good rows; check the inputs"):
        prepare_clicks([str(tmp_path / "clicks")], tmp_path / "out", PrepareSettings(skip_bad_rows=1), silent)


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_count": 0},
        {"max_rows_per_table": 1},
        {"rows_per_shard": 0},
        {"test_fraction": 1.0},
        {"test_fraction": float("nan")},
        {"compression": "zip"},
        {"skip_bad_rows": -1},
        {"backend": "cuda"},
        {"min_count": 1 << 32},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="prepare: "):
        PrepareSettings(**wrong)  # type: ignore[arg-type]
