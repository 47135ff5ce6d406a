"""A training begins with another's weights only where each row's value can be told; the rest is refused by name."""

import json
import logging
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bagpipe_hpc.config.file import to_document
from bagpipe_hpc.config.schema import Config, DataConfig, ModelConfig, TrainConfig
from bagpipe_hpc.errors import BagpipeError, CheckpointError, ConfigError
from bagpipe_hpc.preparation.scoring import require_same_ids
from bagpipe_hpc.preparation.warm_start import find_warm_start, say_rows_taken
from bagpipe_hpc.run.start import table_origins
from bagpipe_hpc.run.start.resumed_settings import require_same_training
from bagpipe_hpc.run.start.table_origins import SavedTables, TableOrigin
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.shards.columns import column_words, unknown_columns, value_words
from bagpipe_hpc.storage.shards.entries import ShardInfo, TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest, save_manifest
from bagpipe_hpc.storage.vocabularies.vocabulary import TableVocabulary
from tests.unit.checkpoint_samples import sample_records, write_checkpoint

ROWS = (5, 3)
EARLIER = ShardManifest(
    1,
    "criteo",
    3,
    (TableInfo("C1", 5), TableInfo("C2", 3)),
    (ShardInfo("train-00000.h5", 2560, 7, 1, "0" * 64),),
    (),
    vocabularies=FileInfo("vocabularies.h5", 1, "a" * 64),
)
LATER = replace(
    EARLIER,
    tables=(TableInfo("C1", 7), TableInfo("C2", 2)),
    train=(ShardInfo("train-00000.h5", 2000, 7, 1, "1" * 64),),
    vocabularies=FileInfo("vocabularies.h5", 1, "b" * 64),
)
"""Other values, so that ids are told by these."""


def settings(start: Path, takes: str = "all", **model: object) -> Config:
    train = TrainConfig(warm_start=str(start), warm_start_takes=takes)
    return Config(model=ModelConfig(embedding_dim=4, **model), train=train)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Of a training on `EARLIER`, whose folder is beside it."""
    (tmp_path / "shards").mkdir()
    save_manifest(tmp_path / "shards", EARLIER)
    return write_earlier(tmp_path / "run", tmp_path / "shards")


def write_earlier(output: Path, shards: Path, **facts: object) -> Path:
    config = to_document(Config(data=DataConfig(path=str(shards))))
    known = {"training_data": EARLIER.digest("train"), "vocabularies": "a" * 64, "config": config}
    known["columns"] = column_words(EARLIER)
    write_checkpoint(output, sample_records(ROWS, 5), ROWS, **{**known, **facts})
    return output


def test_unasked_weights_come_from_the_seed() -> None:
    assert find_warm_start(Config(), LATER) is None


def test_ids_are_the_same_on_the_same_and_on_later_rows_and_told_by_value_on_others(output: Path) -> None:
    same_ids = (TableOrigin("C1"), TableOrigin("C2"))
    grown = replace(LATER, grown_from="a" * 64)
    for shards in (EARLIER, replace(LATER, vocabularies=EARLIER.vocabularies), grown):
        found = find_warm_start(settings(output), shards)
        assert found is not None
        assert found.rows is not None
        assert (found.rows.tables, found.takes_dense) == (same_ids, True)
        assert isinstance(found.rows.rows, SavedTables)
        assert (found.rows.rows.with_state, found.rows.has_grown) == (False, shards is grown)
    found = find_warm_start(settings(output, "rows"), LATER)
    assert found is not None
    assert found.rows is not None
    by_value = tuple(replace(origin, values_of=output.parent / "shards") for origin in same_ids)
    assert (found.rows.tables, found.takes_dense) == (by_value, False)


def test_the_dense_half_alone_needs_no_vocabulary(tmp_path: Path) -> None:
    output = write_earlier(tmp_path / "run", tmp_path / "gone", vocabularies=None)
    found = find_warm_start(settings(output, "dense"), LATER)
    assert found is not None
    assert (found.rows, found.takes_dense) == (None, True)


def test_tables_that_only_one_has_are_said(output: Path, caplog: pytest.LogCaptureFixture) -> None:
    shards = replace(LATER, tables=(TableInfo("C9", 7), TableInfo("C2", 2)))
    with caplog.at_level(logging.INFO):
        found = find_warm_start(settings(output), shards)
    assert found is not None
    assert found.rows is not None
    assert [origin.table for origin in found.rows.tables] == ["C2"]
    assert "C9 are not in the checkpoint and begin with new rows" in caplog.text
    assert "C1 of the checkpoint are not among the tables of the data" in caplog.text


def test_rows_that_are_taken_are_said_of_each_table(
    output: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    values = {"shards": {"C1": [5, 6, 7, 8], "C2": [1, 2]}, "later": {"C1": [6, 9, 8, 10, 11, 12], "C2": [2]}}

    def read(directory: Path, _: object, table: str) -> TableVocabulary:
        return TableVocabulary(np.array(values[directory.name][table], np.uint32))

    monkeypatch.setattr(table_origins, "read_table_vocabulary", read)
    tables = (TableInfo("C1", 7), TableInfo("C9", 1200), TableInfo("C2", 2))
    by_value = replace(LATER, tables=tables)
    by_id = replace(by_value, vocabularies=EARLIER.vocabularies)
    for shards, takes, said in (
        (by_id, "all", "7 rows are trained ones, the other 1,202 begin anew: C1 5 of 7, C9 0 of 1,200, C2 2 of 2"),
        (by_value, "rows", "5 rows are trained ones, the other 1,204 begin anew: C1 3 of 7, C9 0 of 1,200, C2 2 of 2"),
        (by_id, "dense", "all rows are new"),
    ):
        caplog.clear()
        found = find_warm_start(settings(output, takes), shards)
        assert found is not None
        with caplog.at_level(logging.INFO):
            say_rows_taken(found, output.parent / "later", shards)
        assert caplog.messages == [f"warm start: {said}"]


def test_hashed_tables_are_taken_where_both_have_as_many_rows(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    save_manifest(tmp_path / "shards", replace(EARLIER, hashed_tables=("C2",)))
    output = write_earlier(tmp_path / "run", tmp_path / "shards")
    alike = replace(LATER, tables=(TableInfo("C1", 7), TableInfo("C2", 3)), hashed_tables=("C2",))
    found = find_warm_start(settings(output), alike)
    assert found is not None
    assert found.rows is not None
    assert [origin.values_of for origin in found.rows.tables] == [tmp_path / "shards", None]
    for other, what in (
        (replace(alike, tables=LATER.tables), "hashed to 3 rows there, and hashed to 2 rows in this run's data"),
        (replace(alike, hashed_tables=()), "hashed to 3 rows there, and 3 rows in this run's data"),
    ):
        with pytest.raises(CheckpointError, match=f"table C2 has {what}.*prepare the data with --like"):
            find_warm_start(settings(output), other)


@pytest.mark.parametrize(
    ("config", "shards", "message"),
    [
        ({"embedding_dim_of": {"C2": 8}}, LATER, "rows of table C2 have 4 numbers there, and 8 in this run"),
        (
            {},
            replace(LATER, tables=(TableInfo("D1", 7),)),
            "has rows of C1, C2, and the data tables D1: none in common",
        ),
    ],
)
def test_rows_that_cannot_be_those_of_the_tables_are_refused(
    output: Path, config: dict[str, object], shards: ShardManifest, message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        find_warm_start(settings(output, **config), shards)


@pytest.mark.usefixtures("output")
def test_values_that_cannot_be_told_are_refused_with_the_cure(tmp_path: Path) -> None:
    cure = "train.warm_start_takes=dense"
    moved = write_earlier(tmp_path / "moved", tmp_path / "gone")
    silent = write_earlier(tmp_path / "silent", tmp_path / "shards", vocabularies=None)
    other = write_earlier(tmp_path / "other", tmp_path / "shards", vocabularies="c" * 64)
    for start, message in (
        (moved, f"ids are those of other data, {tmp_path}/gone, whose vocabulary tells which row is which value"),
        (silent, "it does not say which vocabulary that had"),
        (other, f"has another vocabulary now \\({'a' * 64} instead of {'c' * 64}\\)"),
    ):
        with pytest.raises(CheckpointError, match=f"{message}.*{cure}"):
            find_warm_start(settings(start), LATER)
    with pytest.raises(BagpipeError, match="nowhere"):
        find_warm_start(settings(tmp_path / "nowhere"), LATER)


def test_a_checkpoint_that_the_run_would_replace_is_refused(output: Path) -> None:
    train = TrainConfig(warm_start=str(output), output=str(output), overwrite=True)
    with pytest.raises(
        ConfigError, match=r"train\.warm_start = .*: lies in train\.output, where this run would replace"
    ):
        find_warm_start(replace(settings(output), train=train), EARLIER)


def test_a_part_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train\.warm_start_takes = 'tables': use one of all, rows, dense"):
        TrainConfig(warm_start_takes="tables")


COLUMNS = [{"name": "label", "kind": "label"}, {"name": "I1", "kind": "numeric"}, {"name": "I2", "kind": "numeric"}]


def of_schema(shards: ShardManifest, columns: list[dict[str, object]] = COLUMNS, **settings: object) -> ShardManifest:
    schema = {"file": {}, "columns": columns, "derived": []}
    return replace(shards, source_format="schema", settings={"schema": schema, **settings})


def test_dense_weights_of_other_columns_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also of later rows with the same vocabulary. Rows alone may be taken; that is said."""
    (tmp_path / "shards").mkdir()
    save_manifest(tmp_path / "shards", EARLIER)
    output = write_earlier(tmp_path / "run", tmp_path / "shards", columns=column_words(of_schema(EARLIER)))
    swapped = of_schema(LATER, [COLUMNS[0], COLUMNS[2], COLUMNS[1]])
    for shards in (swapped, replace(swapped, vocabularies=EARLIER.vocabularies)):
        with pytest.raises(CheckpointError, match=r"weights are of other columns: column numeric I1 then, .* I2 now"):
            find_warm_start(settings(output), shards)
        with caplog.at_level(logging.WARNING):
            assert find_warm_start(settings(output, "rows"), shards)
        assert "was trained on: column numeric I1 then, column numeric I2 now" in caplog.text
    rarer = [*COLUMNS, {"name": "C1", "kind": "categorical", "min_count": 9}]  # rows go by their values
    assert find_warm_start(settings(output), of_schema(LATER, rarer))
    assert find_warm_start(settings(output), replace(swapped, train=EARLIER.train)), "the rows that it was trained on"


def write_exported(folder: Path, **recorded: object) -> Path:
    """What `bagpipe export` says of the model of `EARLIER`, hashed values in C2."""
    folder.mkdir()
    known = {"step": 9, "training_data": EARLIER.digest("train"), "vocabularies": "a" * 64, **recorded}
    manifest = {"format": "bagpipe-export", "version": 1, "checkpoint": known, "files": []}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    kept = {"file": "tables.safetensors", "vocabulary": None, "buckets": 0, "width": 4}
    tables = [{**kept, "name": "C1", "rows": 5, "values": "numbers"}, {**kept, "name": "C2", "rows": 3}]
    tables[1]["values"] = "hashed"
    (folder / "schema.json").write_text(json.dumps({"tables": tables}))
    return folder


def test_columns_of_an_exported_model_are_compared_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    start = write_exported(tmp_path / "exported", columns=column_words(of_schema(EARLIER)))
    later = replace(LATER, tables=EARLIER.tables, hashed_tables=("C2",))
    with caplog.at_level(logging.WARNING):
        assert find_warm_start(settings(start), of_schema(later))
    assert not caplog.text
    with pytest.raises(CheckpointError, match=r"weights are of other columns: column numeric I1 then, .* I2 now"):
        find_warm_start(settings(start), of_schema(later, [COLUMNS[0], COLUMNS[2], COLUMNS[1]]))
    with caplog.at_level(logging.WARNING):
        assert find_warm_start(settings(write_exported(tmp_path / "older")), of_schema(later))
    assert "columns of the data (data.path): not recorded, and taken for the same" in caplog.text


def test_a_table_of_an_exported_model_that_was_hashed_from_other_values_is_refused(tmp_path: Path) -> None:
    def hashed(values: str) -> ShardManifest:
        own = of_schema(LATER, [*COLUMNS, {"name": "C2", "kind": "categorical", "values": values}])
        return replace(own, hashed_tables=("C2",), tables=EARLIER.tables)

    made_of = sorted(value_words(hashed("integer"), "C2"))
    start = write_exported(tmp_path / "exported", hashed_from={"C2": made_of})
    assert find_warm_start(settings(start), hashed("integer"))
    with pytest.raises(CheckpointError, match=r"table C2 was hashed from .*\"integer\".* there, and from .*\"text\""):
        find_warm_start(settings(start), hashed("text"))
    assert find_warm_start(settings(write_exported(tmp_path / "older")), hashed("text")), "it is not recorded"


def test_columns_that_cannot_be_compared_are_said(output: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of a checkpoint that does not record them, and of rows from another source format."""
    older = write_earlier(output.parent / "older", output.parent / "shards", columns=())
    for checkpoint, said in (
        (older, "not recorded, and taken"),
        (output, "source format criteo .* now source format schema"),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            find_warm_start(settings(checkpoint), of_schema(LATER))
        assert re.search(f"warm start: .*{said}", caplog.text)
        caplog.clear()
        find_warm_start(settings(checkpoint, "rows"), of_schema(LATER))
        assert "taken for the same" not in caplog.text
    assert unknown_columns(column_words(EARLIER), column_words(LATER)) == ""


def test_numbers_that_were_fitted_anew_are_said(output: Path, caplog: pytest.LogCaptureFixture) -> None:
    then = column_words(of_schema(EARLIER, fitted={"I1": {"mean": 1.5}}))
    start = write_earlier(output.parent / "fitted", output.parent / "shards", columns=then)
    with caplog.at_level(logging.WARNING):
        find_warm_start(settings(start), of_schema(LATER, fitted={"I1": {"mean": 2.5}}))
    assert 'was trained on: fitted I1 {"mean": 1.5} then, fitted I1 {"mean": 2.5} now' in caplog.text


def test_a_table_that_was_hashed_from_other_values_is_refused(output: Path) -> None:
    def hashed(shards: ShardManifest, values: str) -> ShardManifest:
        own = of_schema(shards, [*COLUMNS, {"name": "C2", "kind": "categorical", "values": values}])
        return replace(own, hashed_tables=("C2",), tables=EARLIER.tables)

    save_manifest(output.parent / "shards", hashed(EARLIER, "integer"))
    assert find_warm_start(settings(output), hashed(LATER, "integer"))
    with pytest.raises(CheckpointError, match=r"table C2 was hashed from .*\"integer\".* there, and from .*\"text\""):
        find_warm_start(settings(output), hashed(LATER, "text"))


def test_tables_that_differ_are_named(output: Path) -> None:
    checkpoint = load_checkpoint(output)
    for tables, said in (
        ((TableInfo("C1", 5), TableInfo("C9", 3)), "tables C1, C2 then, C1, C9 now"),
        ((TableInfo("C2", 3), TableInfo("C1", 5)), "tables C1, C2 then, C2, C1 now"),
        ((TableInfo("C1", 5), TableInfo("C2", 4)), "3 rows of table C2 then, 4 now"),
    ):
        with pytest.raises(CheckpointError, match=f"other ids than those of data: {said}; name the data"):
            require_same_ids(checkpoint, replace(EARLIER, tables=tables), Path("data"))


def test_other_columns_are_not_scored_and_not_gone_on_with(output: Path) -> None:
    later = replace(LATER, tables=EARLIER.tables, vocabularies=EARLIER.vocabularies)
    start = write_earlier(output.parent / "named", output.parent / "shards", columns=column_words(of_schema(EARLIER)))
    checkpoint = load_checkpoint(start)
    swapped = of_schema(later, [COLUMNS[0], COLUMNS[2], COLUMNS[1]])
    require_same_ids(checkpoint, of_schema(later), Path("data"))
    with pytest.raises(CheckpointError, match=r"other columns than those of data: column numeric I1 then, .* I2 now"):
        require_same_ids(checkpoint, swapped, Path("data"))
    require_same_ids(checkpoint, replace(swapped, train=EARLIER.train), Path("data"))
    grown = replace(swapped, vocabularies=LATER.vocabularies, grown_from="a" * 64)
    for shards in (swapped, grown):
        with pytest.raises(
            CheckpointError, match=r"data\.path, columns: 'column numeric I1' then, 'column numeric I2' now"
        ):
            require_same_training(checkpoint, Config(), shards)
    with pytest.raises(CheckpointError) as refusal:
        require_same_training(checkpoint, Config(), of_schema(later))
    assert "data.path, columns" not in str(refusal.value)
