"""A manifest survives the way to JSON and back, and a hostile one is refused with file and field."""

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.shards.entries import FeatureInfo, InputInfo, ShardInfo, TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest, save_manifest

MANIFEST = ShardManifest(
    schema_version=1,
    source_format="criteo",
    dense_features=13,
    tables=(TableInfo("C1", 5), TableInfo("C2", 70_000)),
    train=(ShardInfo("train-00000.h5", 10, 3, 4096, "a" * 64), ShardInfo("train-00001.h5", 4, 0, 2048, "b" * 64)),
    test=(ShardInfo("test-00000.h5", 6, 2, 1024, "0" * 64),),
    inputs=(InputInfo("day_0.gz", 12345, 1_700_000_000_000_000_000),),
    settings={"min_count": 2, "compression": "lzf"},
    skipped_rows=("day_0.gz:7: label is 'x'",),
    vocabularies=FileInfo("vocabularies.h5", 999, "c" * 64),
)


def test_the_way_to_json_and_back() -> None:
    assert ShardManifest.from_json(MANIFEST.to_json()) == MANIFEST
    for other in (replace(MANIFEST, vocabularies=None), replace(MANIFEST, hashed_tables=("C2",))):
        assert ShardManifest.from_json(other.to_json()) == other


RAGGED = ShardManifest(
    schema_version=2,
    source_format="shop",
    dense_features=0,
    tables=(TableInfo("user", 5), TableInfo("item", 70)),
    train=(ShardInfo("train-00000.h5", 10, 3, 4096, "a" * 64, (1,), (25, 0)),),
    test=(),
    settings={},
    features=(
        FeatureInfo("user", "user"),
        FeatureInfo("history", "item", ragged=True, longest=7),
        FeatureInfo("item", "item"),
        FeatureInfo("likes", "item", ragged=True, weighted=True, longest=0),
    ),
    labels=("click", "buy"),
    weighted_samples=True,
)


def test_features_labels_and_weights_on_the_way_to_json_and_back() -> None:
    versions = (replace(RAGGED, weighted_samples=False), replace(MANIFEST, schema_version=2))
    for other in (RAGGED, replace(RAGGED, labels=("a/b", ".")), *versions):
        assert ShardManifest.from_json(other.to_json()) == other
    assert RAGGED.feature_tables == (0, 1, 1, 1)
    assert [feature.name for feature in RAGGED.ragged_features] == ["history", "likes"]
    assert RAGGED.label_rates == (0.3, 0.1)


def test_the_text_of_plain_clicks_is_that_of_version_1() -> None:
    """Older programs read it, and prepared folders keep their checksums."""
    assert MANIFEST.features == (FeatureInfo("C1", "C1"), FeatureInfo("C2", "C2"))
    assert (MANIFEST.labels, MANIFEST.weighted_samples) == (("label",), False)
    fields = json.loads(MANIFEST.to_json())
    assert not {"features", "labels", "weighted_samples"} & fields.keys()
    assert fields["shards"]["train"][0].keys() == {"file", "rows", "positives", "bytes", "sha256"}


@pytest.mark.parametrize(
    "more", [{"features": (FeatureInfo("C2", "C2"), FeatureInfo("C1", "C1"))}, {"labels": ("click",)}]
)
def test_what_older_programs_would_misread_is_version_2(more: dict[str, Any]) -> None:
    assert replace(MANIFEST, **more).schema_version == 2
    assert replace(MANIFEST, weighted_samples=True).schema_version == 2


def test_saved_and_loaded(tmp_path: Path) -> None:
    save_manifest(tmp_path, MANIFEST)
    assert load_manifest(tmp_path) == MANIFEST
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_derived_facts() -> None:
    assert MANIFEST.table_rows == (5, 70_000)
    assert (MANIFEST.rows("train"), MANIFEST.rows("test")) == (14, 6)
    assert MANIFEST.label_rate == 5 / 20
    assert MANIFEST.sparse_dtype == "int32"
    assert replace(MANIFEST, tables=(TableInfo("C1", (1 << 31) + 1),), features=()).sparse_dtype == "int64"
    assert replace(MANIFEST, train=(), test=()).label_rate == 0
    with pytest.raises(ValueError, match="validation"):
        MANIFEST.rows("validation")


Change = Callable[[dict[str, Any]], object]

HOSTILE: dict[str, Change] = {
    "schema_version is 3 instead": lambda m: m.update(schema_version=3),
    "schema_version is True instead": lambda m: m.update(schema_version=True),
    "source_format is 7 instead": lambda m: m.update(source_format=7),
    "dense_features is -1 instead": lambda m: m.update(dense_features=-1),
    "dense_features is 13.0 instead": lambda m: m.update(dense_features=13.0),
    "tables is missing": lambda m: m.pop("tables"),
    "tables is {} instead": lambda m: m.update(tables={}),
    r"tables\[1\] is 'C2' instead of an object": lambda m: m["tables"].__setitem__(1, "C2"),
    r"tables\[0\].rows is 0 instead": lambda m: m["tables"][0].update(rows=0),
    r"tables\[0\].rows is 9223372036854775808 instead": lambda m: m["tables"][0].update(rows=1 << 63),
    r"tables\[0\].columns is unknown": lambda m: m["tables"][0].update(columns=1),
    r"shards.train\[0\].file is '\.\./x' instead": lambda m: m["shards"]["train"][0].update(file="../x"),
    r"shards.train\[0\].file is '/etc/passwd' instead": lambda m: m["shards"]["train"][0].update(file="/etc/passwd"),
    r"shards.train\[0\].file is '\.\.' instead": lambda m: m["shards"]["train"][0].update(file=".."),
    r"shards.train\[0\].file is '\\x1b\[2J' instead": lambda m: m["shards"]["train"][0].update(file="\x1b[2J"),
    r"shards.train\[0\].file is '' instead": lambda m: m["shards"]["train"][0].update(file=""),
    r"shards.train\[0\].file is 'a\\\\b' instead": lambda m: m["shards"]["train"][0].update(file="a\\b"),
    r"shards.train\[0\].file is 'a\\x00' instead": lambda m: m["shards"]["train"][0].update(file="a\0"),
    r"shards.test\[0\].positives is 7, more than": lambda m: m["shards"]["test"][0].update(positives=7),
    r"shards.test\[0\].rows is -6 instead": lambda m: m["shards"]["test"][0].update(rows=-6),
    r"shards.test\[0\].bytes is None instead": lambda m: m["shards"]["test"][0].update(bytes=None),
    r"shards.test\[0\].sha256 is 'AA' instead": lambda m: m["shards"]["test"][0].update(sha256="AA"),
    "shards names a file twice": lambda m: m["shards"]["test"][0].update(file="train-00000.h5"),
    "shards.validation is unknown": lambda m: m["shards"].update(validation=[]),
    "rows.train is 15, not the sum": lambda m: m["rows"].update(train=15),
    "label_rate is 0.5, not that of the shards": lambda m: m.update(label_rate=0.5),
    "label_rate is 1 instead": lambda m: m.update(label_rate=1),
    r"skipped_rows\[0\] is 3 instead of a string": lambda m: m.update(skipped_rows=[3]),
    "settings is null|settings is None": lambda m: m.update(settings=None),
    "surprise is unknown": lambda m: m.update(surprise=1),
    "tables adds up to 18446744073709551614 rows": lambda m: [t.update(rows=(1 << 63) - 1) for t in m["tables"]],
    "tables names none": lambda m: m.update(tables=[]),
    "tables names 'C1' twice": lambda m: m["tables"][1].update(name="C1"),
    "hashed_tables names 'C2' twice": lambda m: m.update(hashed_tables=["C2", "C2"]),
    "hashed_tables names 'C3', no table": lambda m: m.update(hashed_tables=["C3"]),
    r"hashed_tables\[0\] is 2 instead of a string": lambda m: m.update(hashed_tables=[2]),
    r"shards.train\[0\].file is 'C:x' instead": lambda m: m["shards"]["train"][0].update(file="C:x"),
}


@pytest.mark.parametrize("problem", HOSTILE)
def test_hostile_content_is_refused_with_file_and_field(tmp_path: Path, problem: str) -> None:
    fields = json.loads(MANIFEST.to_json())
    HOSTILE[problem](fields)
    (tmp_path / "manifest.json").write_text(json.dumps(fields))
    with pytest.raises(DataError, match=rf"manifest\.json: ({problem})"):
        load_manifest(tmp_path)


HOSTILE_RAGGED: dict[str, Change] = {
    "features is unknown in schema_version 1": lambda m: m.update(schema_version=1),
    "features is missing": lambda m: m.pop("features"),
    "features names none": lambda m: m.update(features=[]),
    "labels is missing": lambda m: m.pop("labels"),
    "labels names none": lambda m: m.update(labels=[]),
    "weighted_samples is missing": lambda m: m.pop("weighted_samples"),
    "weighted_samples is 1 instead of true": lambda m: m.update(weighted_samples=1),
    r"features\[1\].name is '\.\.' instead of printable": lambda m: m["features"][1].update(name=".."),
    r"features\[1\].name is 'a/b' instead of printable": lambda m: m["features"][1].update(name="a/b"),
    r"features\[1\].name is '' instead of printable": lambda m: m["features"][1].update(name=""),
    r"features\[1\].name is 'a\\x00' instead of printable": lambda m: m["features"][1].update(name="a\0"),
    "features names 'item' twice": lambda m: m["features"][1].update(name="item"),
    r"features\[0\].table is 'users', no table": lambda m: m["features"][0].update(table="users"),
    r"tables\[0\] is 'user', which no feature looks up": lambda m: m["features"][0].update(table="item"),
    r"features\[2\].weighted is True of a feature that is not ragged": lambda m: m["features"][2].update(weighted=True),
    r"features\[2\].longest is 2 instead of 1": lambda m: m["features"][2].update(longest=2),
    r"features\[1\].longest is -1 instead": lambda m: m["features"][1].update(longest=-1),
    "labels names 'buy' twice": lambda m: m.update(labels=["buy", "buy"]),
    r"labels\[0\] is '\\x1b' instead of printable": lambda m: m.update(labels=["\x1b", "buy"]),
    r"shards.train\[0\].more_positives is 11, more than its 10 rows": lambda m: m["shards"]["train"][0].update(
        more_positives=[11]
    ),
    r"shards.train\[0\].more_positives has 0 numbers for 2 labels": lambda m: m["shards"]["train"][0].pop(
        "more_positives"
    ),
    r"shards.train\[0\].values has 1 numbers for 2 ragged": lambda m: m["shards"]["train"][0].update(values=[25]),
    r"shards.train\[0\].values is 71 for history, more than 10 rows of 7": lambda m: m["shards"]["train"][0].update(
        values=[71, 0]
    ),
    r"shards.train\[0\].values\[1\] is -1 instead": lambda m: m["shards"]["train"][0].update(values=[25, -1]),
}


@pytest.mark.parametrize("problem", HOSTILE_RAGGED)
def test_hostile_features_labels_and_weights(tmp_path: Path, problem: str) -> None:
    fields = json.loads(RAGGED.to_json())
    HOSTILE_RAGGED[problem](fields)
    (tmp_path / "manifest.json").write_text(json.dumps(fields))
    with pytest.raises(DataError, match=rf"manifest\.json: ({problem})"):
        load_manifest(tmp_path)


@pytest.mark.parametrize("name", ["", "a/b", "../day", "a\0"])
def test_an_input_has_a_name_without_a_folder(tmp_path: Path, name: str) -> None:
    """Any other name may be that of a file, and no file is opened by it."""
    (tmp_path / "manifest.json").write_text(replace(MANIFEST, inputs=(InputInfo(name, 1, 1),)).to_json())
    with pytest.raises(DataError, match=r"inputs\[0\].file is '.*' instead of the name of a file without its folder"):
        load_manifest(tmp_path)


@pytest.mark.parametrize("field", ["rows", "train", "sha256"])
def test_a_field_that_is_given_twice(tmp_path: Path, field: str) -> None:
    text = MANIFEST.to_json()
    (tmp_path / "manifest.json").write_text(text.replace(f'"{field}": ', f'"{field}": 1, "{field}": ', 1))
    with pytest.raises(DataError, match=rf"manifest\.json: '{field}' is given twice in one object; "):
        load_manifest(tmp_path)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"schema_version": NaN}', b"[" * 100_000, b"1" * 5000]
)
def test_what_is_no_manifest_at_all(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(text)
    with pytest.raises(DataError, match=r"manifest\.json: "):
        load_manifest(tmp_path)


def test_a_missing_manifest_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=rf"^day: no manifest\.json here, as seen from {tmp_path}; name a folder that"):
        load_manifest(Path("day"))
    with pytest.raises(DataError, match=r"no manifest\.json here; name a folder that bagpipe prepare has written"):
        load_manifest(tmp_path)
    (tmp_path / "preparation.json").touch()
    with pytest.raises(DataError, match="preparation is not finished; run bagpipe prepare again to resume"):
        load_manifest(tmp_path)


def test_a_manifest_that_the_system_does_not_give_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "manifest.json").touch()
    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(DataError, match=r"manifest\.json: cannot be read \(Input/output error\); check the"):
        load_manifest(tmp_path)
