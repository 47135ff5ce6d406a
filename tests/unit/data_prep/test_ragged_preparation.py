"""Lists, shared tables, several labels and weights become shards as a plain reading has it, whatever prepares them."""

import hashlib
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import data_prep.inputs.blocks
import data_prep.ranks.progress
import data_prep.stages.parse
import data_prep.stages.write
from bagpipe_hpc.errors import DataError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.storage.shards.check import verify_shards
from bagpipe_hpc.storage.shards.entries import FeatureInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from bagpipe_hpc.storage.vocabularies.vocabulary import read_vocabulary
from data_prep.formats.columns import Dense, Label, Sparse, SparseList, Values, Weight
from data_prep.formats.layout import TextLayout
from data_prep.formats.source_format import SourceFormat
from data_prep.parsed_rows import ParsedRows
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings

KINDS = {"hex": Values.HEX, "integer": Values.INTEGER, "text": Values.TEXT}


class Shop(SourceFormat):
    """A user, what is looked at, what was looked at before, and tags with weights."""

    @dataclass(frozen=True)
    class Settings:
        items: str = "hex"

    def describe(self, settings: Settings) -> TextLayout:
        items = KINDS[settings.items]
        columns = (
            Label("click"),
            Label("buy"),
            Weight("importance"),
            Dense("price"),
            SparseList("seen", items, table="item"),
            Sparse("item", items),
            SparseList("tags", Values.TEXT, weights=":"),
            Sparse("user", Values.INTEGER),
            SparseList("none", items, table="item"),
        )
        return TextLayout(columns, ",")


SHOP = f"{__name__}:Shop"
FEATURES = (
    FeatureInfo("seen", "item", ragged=True, longest=5),
    FeatureInfo("item", "item"),
    FeatureInfo("tags", "tags", ragged=True, weighted=True, longest=3),
    FeatureInfo("user", "user"),
    FeatureInfo("none", "item", ragged=True, longest=0),
)

Row = tuple[str, str, str, str, list[str], str, list[tuple[str, str]], str]


def random_rows(count: int, seed: int = 1) -> list[Row]:
    rng = random.Random(seed)
    items = ["1", "2", "3", "A", "b", "10", "99"]
    rows: list[Row] = []
    for number in range(count):
        seen = [rng.choice(items) for _ in range(5 if number == 0 else rng.choice([0, 0, 1, 3]))]
        tags = [(rng.choice(["new", "red", "ö:x"]), rng.choice(["1", "-0.25"])) for _ in range(3 if number == 0 else 1)]
        labels = (rng.choice("01"), rng.choice("01"))
        rows.append(
            (*labels, rng.choice(["0", "1.5"]), "2", seen, rng.choice([*items, ""]), tags, rng.choice(["4", "5", ""]))
        )
    return rows


def write(path: Path, rows: list[Row]) -> str:
    lines = [
        ",".join(
            [*row[:4], "|".join(row[4]), row[5], "|".join(f"{tag}:{weight}" for tag, weight in row[6]), row[7], ""]
        )
        for row in rows
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def silent(_: str) -> None:
    """Progress that nobody reads."""


def read_all(output: Path, manifest: ShardManifest) -> tuple[list[list[list[float]]], list[list[list[float]]]]:
    """Ids and weights of each bag of each sample of both splits."""

    def nested(bags: Bags) -> list[list[list[float]]]:
        assert bags.offsets is not None
        split = [part.tolist() for part in np.split(bags.values, bags.offsets[1:-1])]
        return [split[at : at + bags.features] for at in range(0, len(split), bags.features)]

    ids, weights = [], []
    for split in ("train", "test"):
        with ClickShards(output, manifest, split) as shards:
            ids += nested(shards.read_look_ups(0, shards.rows))
            weights += nested(shards.read_id_weights(0, shards.rows))
    return ids, weights


def number_of(text: str, kind: str) -> int | str:
    return int(text, 16) if kind == "hex" else text


def by_count(values: list[int | str], min_count: int) -> list[int | str]:
    counts = Counter(values)
    kept = [value for value in counts if counts[value] >= min_count]
    return sorted(kept, key=lambda value: (-counts[value], value if isinstance(value, int) else value.encode()))


@pytest.mark.parametrize(("backend", "compression"), [("auto", "gzip"), ("reference", "lzf"), ("auto", "none")])
@pytest.mark.parametrize("kind", ["hex", "text"])
def test_the_shards_are_those_of_a_plain_reading(tmp_path: Path, backend: str, compression: str, kind: str) -> None:
    rows = random_rows(101)
    inputs = [write(tmp_path / "a", rows[:50]), write(tmp_path / "b", rows[50:])]
    settings = PrepareSettings(
        SHOP,
        (f"items={kind}",),
        min_count=3,
        test_fraction=0.2,
        rows_per_shard=30,
        backend=backend,
        compression=compression,
    )
    manifest = prepare_clicks(inputs, tmp_path / "out", settings, silent)
    assert manifest == load_manifest(tmp_path / "out")
    verify_shards(tmp_path / "out", manifest, "full")
    assert (manifest.features, manifest.labels, manifest.weighted_samples) == (FEATURES, ("click", "buy"), True)
    assert [table.name for table in manifest.tables] == ["item", "tags", "user"]
    assert manifest.label_rates == tuple(sum(row[label] == "1" for row in rows) / 101 for label in (0, 1))
    assert manifest.settings is not None
    assert "3 places of the training rows" in manifest.settings["ids"].replace("min_count", "3")

    train = rows[:81]
    items = by_count([number_of(item, kind) for row in train for item in (*row[4], row[5]) if item], 3)
    tags = by_count([tag for row in train for tag, _ in row[6]], 3)
    assert read_vocabulary(tmp_path / "out", manifest, "item").tolist() == items
    item_ids = {value: number for number, value in enumerate(items, start=1)}
    tag_ids = {value: number for number, value in enumerate(tags, start=1)}
    users = {int(value): number for number, value in enumerate(by_count([int(r[7]) for r in train if r[7]], 3), 1)}
    ids, weights = read_all(tmp_path / "out", manifest)
    for row, bags, of_bags in zip(rows, ids, weights, strict=True):
        assert bags == [
            [item_ids.get(number_of(item, kind), 0) for item in row[4]],
            [item_ids.get(number_of(row[5], kind), 0) if row[5] else 0],
            [tag_ids.get(tag, 0) for tag, _ in row[6]],
            [users.get(int(row[7]), 0) if row[7] else 0],
            [],
        ]
        assert of_bags == [[1.0] * len(row[4]), [1.0], [float(weight) for _, weight in row[6]], [1.0], []]
    with ClickShards(tmp_path / "out", manifest, "train") as shards:
        assert shards.read_labels(0, 81).tolist() == [[int(row[0]), int(row[1])] for row in train]
        assert shards.read_sample_weights(0, 81).tolist() == [float(row[2]) for row in train]
        assert shards.read_dense(0, 81).tolist() == [[2.0]] * 81


@pytest.mark.parametrize("kind", ["hex", "integer"])
def test_features_of_a_table_share_hashed_ids(tmp_path: Path, kind: str) -> None:
    digits = str.maketrans("Ab", "78")
    rows: list[Row] = [
        (*row[:4], [item.translate(digits) for item in row[4]], "7", *row[6:]) for row in random_rows(60)
    ]
    source = write(tmp_path / "clicks", rows)
    outputs = {}
    for backend in ("auto", "reference"):
        settings = PrepareSettings(SHOP, (f"items={kind}",), max_rows_per_table=5, backend=backend)
        manifest = prepare_clicks([source], tmp_path / backend, settings, silent)
        assert manifest.hashed_tables == ("item",)
        assert manifest.table_rows[0] == 5
        outputs[backend] = read_all(tmp_path / backend, manifest)
    assert outputs["auto"] == outputs["reference"]
    ids, _ = outputs["auto"]
    of_seven = {bags[1][0] for bags in ids}
    for row, bags in zip(rows, ids, strict=True):
        of_seven |= {id_ for item, id_ in zip(row[4], bags[0], strict=True) if item == "7"}
    assert len(of_seven) == 1
    assert all(1 <= id_ <= 4 for bags in ids for id_ in bags[0])


class Stopped(Exception):  # noqa: N818  # nothing in the program catches it
    """Stands for a kill."""


@pytest.mark.parametrize("after", ["parsed", "built", "wrote 80"])
def test_a_killed_preparation_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    monkeypatch.setattr(data_prep.stages.parse, "PART_ROWS", 40)
    monkeypatch.setattr(data_prep.ranks.progress, "LINE_EVERY_S", 0.0)
    read = data_prep.inputs.blocks.read_blocks
    monkeypatch.setattr(
        data_prep.inputs.blocks, "read_blocks", lambda source, start, end: read(source, start, end, 900)
    )
    source = write(tmp_path / "clicks", random_rows(150))
    settings = PrepareSettings(SHOP, rows_per_shard=40, compression="gzip")

    def stop(line: str) -> None:
        if line.startswith(after):
            raise Stopped

    with pytest.raises(Stopped):
        prepare_clicks([source], tmp_path / "killed", settings, stop)
    prepare_clicks([source], tmp_path / "killed", settings, silent)
    prepare_clicks([source], tmp_path / "whole", settings, silent)

    def sums(folder: Path) -> dict[str, str]:
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}

    assert sums(tmp_path / "killed") == sums(tmp_path / "whole")


def test_pieces_of_long_lists_are_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what threads encode stays within memory; the bytes are the same."""
    source = write(tmp_path / "clicks", random_rows(120))
    settings = PrepareSettings(SHOP, compression="none")
    whole = prepare_clicks([source], tmp_path / "whole", settings, silent)
    monkeypatch.setattr(data_prep.stages.write, "CHUNK_ROWS", 16)
    monkeypatch.setattr(data_prep.stages.write, "ENCODE_ROWS", 64)
    monkeypatch.setattr(data_prep.stages.write, "ENCODE_VALUES", 32)
    sizes: list[int] = []
    read = ParsedRows.read
    monkeypatch.setattr(
        ParsedRows, "read", lambda self, first, last: sizes.append(last - first) or read(self, first, last)
    )
    monkeypatch.setattr("bagpipe_hpc.storage.shards.encoded.CHUNK_ROWS", 16)
    monkeypatch.setattr("bagpipe_hpc.storage.shards.writer.CHUNK_ROWS", 16)
    cut = prepare_clicks([source], tmp_path / "cut", settings, silent)
    assert max(sizes) == 16
    assert read_all(tmp_path / "cut", cut) == read_all(tmp_path / "whole", whole)


def test_a_bad_value_is_named_with_its_file_and_line(tmp_path: Path) -> None:
    source = write(tmp_path / "clicks", random_rows(5))
    text = Path(source).read_text(encoding="utf-8").splitlines()
    text[3] = "1,0,1,2,1|zz,1,new:1,4,"
    Path(source).write_text("\n".join(text), encoding="utf-8")
    with pytest.raises(DataError, match=r"/clicks:4: seen is '1\|zz', which holds 'zz' instead of 1 to 8 hexa.*--skip"):
        prepare_clicks([source], tmp_path / "out", PrepareSettings(SHOP), silent)
