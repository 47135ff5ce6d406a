"""Later rows get the ids that earlier ones gave their values; what would contradict that is refused."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pytest

import data_prep.recorded
from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.errors import ConfigError, DataError
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from bagpipe_hpc.storage.vocabularies.vocabulary import TableVocabulary, read_table_vocabulary
from data_prep.formats.criteo import TABLE_NAMES
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.recorded import load_recorded
from data_prep.vocabularies.vocabulary import HashedIds
from tests.click_rows import random_rows
from tests.extending import Example
from tests.unit.data_prep.plain_preparation import BACKENDS, Naive, assert_counts, prepare_naively, silent, write_text


def read_split(output: Path, manifest: ShardManifest, split: str) -> tuple[list, np.ndarray, np.ndarray]:
    with ClickShards(output, manifest, split) as shards:
        every = (0, shards.rows)
        return shards.read_labels(*every).tolist(), shards.read_dense(*every), shards.read_sparse(*every)


def ids_by(naive: Naive, lines: list[str]) -> list[list[int]]:
    """The ids of lines by the vocabularies of others."""
    maps = [{value: number for number, value in enumerate(values, start=1)} for values in naive.values]
    fields = [line.split("\t")[-26:] for line in lines]
    return [
        [ids.get(int(field, 16), 0) if field else 0 for ids, field in zip(maps, row, strict=True)] for row in fields
    ]


@pytest.fixture
def days(tmp_path: Path) -> tuple[list[str], list[str]]:
    """Two days whose values overlap in part, prepared as `first`; the text of the second is `day_1`."""
    days = random_rows(90, seed=1), random_rows(40, seed=2)
    for number, lines in enumerate(days):
        write_text(tmp_path / f"day_{number}", lines)
    prepare_clicks([str(tmp_path / "day_0")], tmp_path / "first", PrepareSettings(min_count=4), silent)
    return days


@pytest.mark.parametrize("backend", BACKENDS)
def test_later_rows_have_the_ids_of_the_earlier_ones(
    tmp_path: Path, days: tuple[list[str], list[str]], backend: str
) -> None:
    said: list[str] = []
    later = PrepareSettings(like=tmp_path / "first", backend=backend)
    manifest = prepare_clicks([str(tmp_path / "day_1")], tmp_path / "later", later, said.append)
    earlier, naive = load_manifest(tmp_path / "first"), prepare_naively(days[0], 4, 0.1)
    assert (manifest.rows("train"), manifest.rows("test")) == (0, 40)
    labels, _, sparse = read_split(tmp_path / "later", manifest, "test")
    assert labels == [int(line[0]) for line in days[1]]
    assert sparse.tolist() == ids_by(naive, days[1])
    assert manifest.tables == earlier.tables
    assert manifest.vocabularies == earlier.vocabularies
    assert (manifest.grown_from, manifest.waiting) == (None, None)
    vocabularies = [(tmp_path / name / "vocabularies.h5").read_bytes() for name in ("first", "later")]
    assert vocabularies[0] == vocabularies[1]
    assert manifest.settings is not None
    assert manifest.settings["like"] == hashlib.sha256(vocabularies[0]).hexdigest()
    assert manifest.settings["min_count"] == 4
    fields = [line.split("\t")[14:] for line in days[1]]
    unseen = [
        sum(bool(row[table]) and not ids[table] for row, ids in zip(fields, sparse, strict=True)) for table in range(26)
    ]
    most = sorted(range(26), key=lambda table: -unseen[table])[:3]
    named = ", ".join(f"{TABLE_NAMES[table]} {unseen[table] / 40:.2%}" for table in most)
    told = f"40 rows; {sum(unseen) / (40 * 26):.2%} of the look-ups are of values without an id of their own"
    assert said[-1].endswith(f"{told}, most of {named}")
    # Once more, and from what the later rows recorded.
    again = prepare_clicks([str(tmp_path / "day_1")], tmp_path / "later", later, said.append)
    assert again == manifest
    assert "already prepared" in said[-1]
    third = prepare_clicks(
        [str(tmp_path / "day_1")], tmp_path / "third", replace(later, like=tmp_path / "later"), silent
    )
    assert third == manifest


@pytest.mark.usefixtures("days")
def test_a_share_of_later_rows_may_be_for_training(tmp_path: Path) -> None:
    later = PrepareSettings(like=tmp_path / "first", test_fraction=0.25)
    manifest = prepare_clicks([str(tmp_path / "day_1")], tmp_path / "later", later, silent)
    assert (manifest.rows("train"), manifest.rows("test")) == (30, 10)
    assert load_recorded(tmp_path / "later").settings.test_fraction == 0.25


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("limit", [None, 20])
def test_values_without_an_id_share_buckets(tmp_path: Path, backend: str, limit: int | None) -> None:
    lines, later_lines = random_rows(90, seed=1), random_rows(40, seed=2)
    first = PrepareSettings(
        min_count=4 if limit is None else 2, max_rows_per_table=limit, unseen_buckets=3, backend=backend
    )
    prepare_clicks([write_text(tmp_path / "day_0", lines)], tmp_path / "first", first, silent)
    earlier = load_manifest(tmp_path / "first")
    assert_counts(tmp_path / "first", earlier, read_split(tmp_path / "first", earlier, "train")[2])
    later = PrepareSettings(like=tmp_path / "first", backend=backend)
    said: list[str] = []
    manifest = prepare_clicks([write_text(tmp_path / "day_1", later_lines)], tmp_path / "later", later, said.append)
    naive = prepare_naively(lines, 4 if limit is None else 1, 0.1)
    buckets = HashedIds(4)
    known = ids_by(naive, later_lines)
    expected = [
        [
            id_ + 3 if id_ else int(buckets.ids(pa.array([int(field, 16) if field else None], pa.uint32()))[0])
            for id_, field in zip(ids, line.split("\t")[14:], strict=True)
        ]
        for ids, line in zip(known, later_lines, strict=True)
    ]
    assert read_split(tmp_path / "later", manifest, "test")[2].tolist() == expected
    assert manifest.table_rows == tuple(rows + 3 for rows in naive.table_rows)
    in_buckets = sum(0 < id_ <= 3 for ids in expected for id_ in ids)
    assert in_buckets
    assert f"40 rows; {in_buckets / (40 * 26):.2%} of the look-ups are of values without an id of their own" in said[-1]
    assert manifest.settings is not None
    assert manifest.settings["unseen_buckets"] == 3
    assert "fmix64(value) mod unseen_buckets" in manifest.settings["ids"]


def test_values_that_are_hashed_are_hashed_alike(tmp_path: Path) -> None:
    source, hashed = write_text(tmp_path / "day", random_rows(40, seed=2)), PrepareSettings(max_rows_per_table=5)
    first = prepare_clicks([source], tmp_path / "first", hashed, silent)
    later = prepare_clicks([source], tmp_path / "later", PrepareSettings(like=tmp_path / "first"), silent)
    assert (later.table_rows, later.hashed_tables) == (first.table_rows, first.hashed_tables)
    expected = [read_split(tmp_path / "first", first, split)[2] for split in ("train", "test")]
    assert np.array_equal(read_split(tmp_path / "later", later, "test")[2], np.concatenate(expected))
    for asked in ({"min_count": 2}, {"max_rows_per_table": 6}):
        with pytest.raises(ConfigError, match=r"first was prepared with (max-rows-per-table = )?5, and"):
            load_recorded(tmp_path / "first").refuse_contradictions(asked)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_to_score_need_no_labels(tmp_path: Path, days: tuple[list[str], list[str]], backend: str) -> None:
    lines = days[1]
    without = [line.partition("\t")[2] for line in lines]
    other = ["?" + line[1:] for line in lines]
    expected = ids_by(prepare_naively(days[0], 4, 0.1), lines)
    for name, text in (("without", without), ("other", other)):
        ending = "\r\n\r\n" if name == "without" else "\n"
        (tmp_path / name).write_text(ending.join(text), newline="")
        later = PrepareSettings(like=tmp_path / "first", labelled=False, backend=backend)
        manifest = prepare_clicks([str(tmp_path / name)], tmp_path / f"{name}_out", later, silent)
        labels, _, sparse = read_split(tmp_path / f"{name}_out", manifest, "test")
        assert labels == [0] * 40
        assert sparse.tolist() == expected
        assert manifest.settings is not None
        assert manifest.settings["labelled"] is False


def test_rows_to_score_are_of_their_format(tmp_path: Path, days: tuple[list[str], list[str]]) -> None:
    later = PrepareSettings(like=tmp_path / "first", labelled=False)
    short = write_text(tmp_path / "short", ["1\t2"])
    with pytest.raises(
        DataError, match="short: the first row has 2 fields; rows to score have 40, or 39 without label"
    ):
        prepare_clicks([short], tmp_path / "out", later, silent)
    cut = write_text(tmp_path / "cut", [days[1][0].partition("\t")[2], "1\t2"])
    with pytest.raises(DataError, match=r"cut:2: 3 tab-separated fields instead of 40 \(with label, which these rows"):
        prepare_clicks([cut], tmp_path / "out", later, silent)


@pytest.mark.parametrize("quoted", [False, True])
def test_rows_to_score_of_a_format_with_a_header(
    tmp_path: Path, example: Callable[[str], Example], quoted: bool
) -> None:
    """Labels are taken out of the middle of a line, or of its front, behind quotes, too."""
    if quoted:
        example("Source format")
        names = ["bought", "price", "visits", "time", "user", "item", "country"]
        rows = [["1", "9.5", "3", "10:30", "7", '"red; shoe, ""left"""', "DE"], ["0", "", "", "", "8", "x", "FR"]] * 3
        first, labels = PrepareSettings("shop_clicks:ShopClicks", min_count=1, test_fraction=0), {"bought"}
    else:
        generate_clicks(6, tmp_path / "visits.csv", kind="sequences")
        names, *rows = [line.split(",") for line in (tmp_path / "visits.csv").read_text().splitlines()]
        first, labels = PrepareSettings("sequences", min_count=1, test_fraction=0), {"click", "buy", "weight"}

    def write(name: str, columns: list[str], lines: list[list[str]]) -> str:
        (tmp_path / name).write_text("\n".join(",".join(line) for line in [columns, *lines]) + "\n")
        return str(tmp_path / name)

    prepare_clicks([write("all", names, rows)], tmp_path / "first", first, silent)
    kept = [place for place, name in enumerate(names) if name not in labels]
    bare = write("bare", [names[place] for place in kept], [[row[place] for place in kept] for row in rows])
    odd = write(
        "odd",
        names,
        [["" if name in labels else field for name, field in zip(names, row, strict=True)] for row in rows],
    )
    later = PrepareSettings(like=tmp_path / "first", labelled=False)
    with ClickShards(tmp_path / "first", load_manifest(tmp_path / "first"), "train") as shards:
        expected, dense = shards.read_look_ups(0, 6), shards.read_dense(0, 6)
    for number, source in enumerate((bare, odd)):
        manifest = prepare_clicks([source], tmp_path / f"out_{number}", later, silent)
        with ClickShards(tmp_path / f"out_{number}", manifest, "test") as shards:
            assert shards.read_look_ups(0, 6).values.tolist() == expected.values.tolist()
            assert np.array_equal(shards.read_dense(0, 6), dense)
            assert not shards.read_labels(0, 6).any()


def test_an_encoder_alone_gives_the_same_samples(tmp_path: Path, days: tuple[list[str], list[str]]) -> None:
    recorded = load_recorded(tmp_path / "first")
    batch, bad = recorded.source_format.parse_block("".join(f"{line}\n" for line in days[1]).encode())
    samples = recorded.encoder().encode([batch])
    assert not bad
    assert samples.sparse.tolist() == ids_by(prepare_naively(days[0], 4, 0.1), days[1])
    assert [vocabulary.rows for vocabulary in recorded.vocabularies if vocabulary] == list(recorded.manifest.table_rows)


@pytest.mark.usefixtures("days")
@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--min-count", "2"], "prepare: min-count = 2: .*first was prepared with 4, and later rows are prepared as"),
        (["--max-rows-per-table", "9"], "max-rows-per-table = 9: .* was prepared with min-count = 4"),
        (["--format", "sequences"], "format = 'sequences': .* was prepared with criteo, .*; leave --format out"),
        (["--unseen-buckets", "2"], "unseen-buckets = 2: .* was prepared with 0"),
        (["--format-option", "dense=true"], "no such setting of criteo"),
    ],
)
def test_flags_that_contradict_are_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    problem: str,
) -> None:
    command = ["prepare", "--like", str(tmp_path / "first"), "--input", str(tmp_path / "day_1")]
    assert main([*command, "--output", str(tmp_path / "out"), *flags]) == 2
    assert re.search(problem, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()
    same = ["--min-count", "4", "--unseen-buckets", "0", "--format", "criteo"]
    assert main([*command, "--output", str(tmp_path / "out"), *same]) == 0


@pytest.mark.usefixtures("days")
def test_another_schema_is_refused(tmp_path: Path) -> None:
    recorded = load_recorded(tmp_path / "first")
    recorded.refuse_contradictions({"schema": recorded.settings.schema})
    with pytest.raises(ConfigError, match=r"schema = 'a schema': .*first was prepared with another one"):
        recorded.refuse_contradictions({"schema": {"columns": []}})


@pytest.mark.usefixtures("days")
def test_a_command_reads_the_vocabularies_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def read_one(directory: Path, manifest: ShardManifest, table: str) -> TableVocabulary:
        read.append(table)
        return read_table_vocabulary(directory, manifest, table)

    monkeypatch.setattr(data_prep.recorded, "read_table_vocabulary", read_one)
    command = ["prepare", "--like", str(tmp_path / "first"), "--input", str(tmp_path / "day_1")]
    assert main([*command, "--output", str(tmp_path / "out"), "--min-count", "4"]) == 0
    assert read == list(TABLE_NAMES)


def test_own_settings_of_a_format_stay(tmp_path: Path) -> None:
    source = write_text(tmp_path / "day", random_rows(30, 1))
    first = PrepareSettings("criteo_buckets", ("dense=false",))
    prepare_clicks([source], tmp_path / "first", first, silent)
    manifest = prepare_clicks([source], tmp_path / "out", PrepareSettings(like=tmp_path / "first"), silent)
    assert manifest.dense_features == 0
    with pytest.raises(ConfigError, match=r"format-option = 'dense=true': .* was prepared with dense=false"):
        prepare_clicks(
            [source],
            tmp_path / "other",
            PrepareSettings(like=tmp_path / "first", format_options=("dense=true",)),
            silent,
        )


def test_a_folder_of_an_older_program_is_read(tmp_path: Path, days: tuple[list[str], list[str]]) -> None:
    """Its values lie in datasets of the tables' own names."""
    path = tmp_path / "first" / "vocabularies.h5"
    with h5py.File(path) as file:
        values = {name: file[f"values/{name}"][:] for name in TABLE_NAMES}
    with h5py.File(path, "w") as file:
        for name, table in values.items():
            file[name] = table
    text = json.loads((tmp_path / "first" / "manifest.json").read_text())
    text["vocabularies"] |= {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    (tmp_path / "first" / "manifest.json").write_text(json.dumps(text))
    later = PrepareSettings(like=tmp_path / "first")
    manifest = prepare_clicks([str(tmp_path / "day_1")], tmp_path / "out", later, silent)
    assert read_split(tmp_path / "out", manifest, "test")[2].tolist() == ids_by(
        prepare_naively(days[0], 4, 0.1), days[1]
    )
