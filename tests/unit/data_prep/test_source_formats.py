"""Any source format is prepared like Criteo's: the example of docs/extending.md, and what a door refuses."""

import csv
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import data_prep.inputs.blocks
from bagpipe_hpc.errors import ConfigError, DataError
from bagpipe_hpc.storage.shards.check import verify_shards
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest, save_manifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from bagpipe_hpc.storage.vocabularies.vocabulary import read_vocabulary
from data_prep.formats.columns import Label, Sparse, Values
from data_prep.formats.layout import TextLayout
from data_prep.formats.source_format import SourceFormat
from data_prep.preparation_state import PreparationState, load_finished
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.extending import Example

NAMES = ["bought", "price", "visits", "time", "user", "item", "country"]
TABLES = NAMES[4:]
SHOP = PrepareSettings("shop_clicks:ShopClicks", min_count=1, test_fraction=0.2)

Rows = list[list[str]]


@pytest.fixture
def shop(example: Callable[[str], Example]) -> None:
    """The example of the page can be imported."""
    example("Source format")


def random_rows(count: int, seed: int = 1) -> Rows:
    rng = random.Random(seed)
    items = ["", "red; shoe, left", '10" nail', "Nüsse", " sock", "x"]
    choices = [["0", "1"], ["", "9.99", "-1e2"], ["", "-3", "0", "17"], ["", "10:30"]]
    choices += [["", "-5", str((1 << 63) - 1), "007", "7", "8"], items, ["DE", "FR"]]
    return [[rng.choice(values) for values in choices] for _ in range(count)]


def write(path: Path, rows: Rows, separator: str = ",", header: list[str] = NAMES) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=separator, lineterminator="\n").writerows([header, *rows])
    return str(path)


def silent(_: str) -> None:
    """Progress that nobody reads."""


def read_all(output: Path, manifest: ShardManifest) -> tuple[list[np.ndarray], ...]:
    read = []
    for split in ("train", "test"):
        with ClickShards(output, manifest, split) as shards:
            rows = (0, shards.rows)
            read.append([shards.read_labels(*rows), shards.read_dense(*rows), shards.read_sparse(*rows)])
    return tuple(np.concatenate(both) for both in zip(*read, strict=True))


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("separator", [",", ";"])
def test_the_example_is_prepared_as_a_plain_reading_has_it(tmp_path: Path, backend: str, separator: str) -> None:
    rows = random_rows(101)
    inputs = [write(tmp_path / name, part, separator) for name, part in (("a", rows[:50]), ("b", rows[50:]))]
    settings = PrepareSettings(
        SHOP.source_format,
        (f"separator={separator}",),
        min_count=3,
        test_fraction=0.2,
        rows_per_shard=30,
        backend=backend,
    )
    manifest = prepare_clicks(inputs, tmp_path / "out", settings, silent)
    assert manifest == load_manifest(tmp_path / "out")
    verify_shards(tmp_path / "out", manifest, "full")
    assert (manifest.source_format, manifest.dense_features) == ("shop_clicks:ShopClicks", 2)
    assert manifest.settings is not None
    assert manifest.settings["format_options"] == {"separator": separator}
    assert [table.name for table in manifest.tables] == TABLES
    label, dense, sparse = read_all(tmp_path / "out", manifest)
    assert label.tolist() == [int(row[0]) for row in rows]
    prices, visits = ([float(row[column] or 0) for row in rows] for column in (1, 2))
    assert np.allclose(dense[:, 0], prices)
    assert np.allclose(dense[:, 1], np.log1p(np.maximum(visits, 0)))
    for table, name in enumerate(TABLES):
        written = [row[4 + table] for row in rows]
        values = (
            [int(text) if text else None for text in written] if name == "user" else [text or None for text in written]
        )
        counts = Counter(value for value in values[: len(rows) - round(0.2 * len(rows))] if value is not None)
        kept = [value for value in counts if counts[value] >= 3]
        kept.sort(key=lambda value: (-counts[value], value if isinstance(value, int) else value.encode()))
        assert read_vocabulary(tmp_path / "out", manifest, name).tolist() == kept
        ids = {value: number for number, value in enumerate(kept, start=1)}
        assert sparse[:, table].tolist() == [ids.get(value, 0) for value in values]


@pytest.mark.usefixtures("shop")
def test_ids_are_hashed_where_a_table_would_be_too_large(tmp_path: Path) -> None:
    rows = random_rows(60)
    settings = PrepareSettings(SHOP.source_format, max_rows_per_table=4)
    manifest = prepare_clicks([write(tmp_path / "clicks", rows)], tmp_path / "out", settings, silent)
    assert manifest.hashed_tables == ("user", "item")
    assert manifest.table_rows == (4, 4, 3)
    assert manifest.settings is not None
    assert "BLAKE2b" in manifest.settings["ids"]
    _, _, sparse = read_all(tmp_path / "out", manifest)
    for column, table in ((4, 0), (5, 1)):
        ids = {(row[column].lstrip("0"), id_) for row, id_ in zip(rows, sparse[:, table].tolist(), strict=True)}
        assert len(ids) == len({value for value, _ in ids})
        assert all((id_ == 0) == (value == "") for value, id_ in ids)


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("line", [2, 40, 61])
def test_a_bad_line_is_named_with_its_file_and_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: int
) -> None:
    """The header is line 1; blocks after the first have none."""
    read = data_prep.inputs.blocks.read_blocks
    monkeypatch.setattr(
        data_prep.inputs.blocks, "read_blocks", lambda source, start, end: read(source, start, end, 300)
    )
    rows = random_rows(60)
    rows[line - 2][1] = "cheap"
    inputs = [write(tmp_path / "good", random_rows(30)), write(tmp_path / "bad", rows)]
    with pytest.raises(DataError, match=rf"/bad:{line}: price is 'cheap', which is no number; .*--skip-bad-rows"):
        prepare_clicks(inputs, tmp_path / "out", SHOP, silent)
    skipping = PrepareSettings(SHOP.source_format, skip_bad_rows=1)
    manifest = prepare_clicks(inputs, tmp_path / "skipped", skipping, silent)
    assert manifest.skipped_rows == (f"{tmp_path}/bad:{line}: price is 'cheap', which is no number",)
    assert manifest.rows("train") + manifest.rows("test") == 89


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("header", [NAMES[::-1], NAMES[:-1], ["0", "1", "2", "", "3", "a", "DE"]])
def test_another_header_is_refused_before_anything_is_read(tmp_path: Path, header: list[str]) -> None:
    inputs = [write(tmp_path / "good", random_rows(3)), write(tmp_path / "other", random_rows(3), header=header)]
    with pytest.raises(DataError, match=rf"/other:1: the header is '{','.join(header)}' instead of 'bought,price,"):
        prepare_clicks(inputs, tmp_path / "out", SHOP, silent)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("shop")
def test_a_header_behind_a_byte_order_mark_and_nothing_behind_a_header(tmp_path: Path) -> None:
    marked = Path(write(tmp_path / "marked", random_rows(3)))
    marked.write_bytes(b"\xef\xbb\xbf" + marked.read_bytes().replace(b"\n", b"\r\n"))
    inputs = [str(marked), write(tmp_path / "empty", [])]
    manifest = prepare_clicks(inputs, tmp_path / "out", PrepareSettings(SHOP.source_format), silent)
    assert manifest.rows("train") == 3


class Stopped(Exception):  # noqa: N818  # nothing in the program catches it
    """Stands for a kill."""


def stop_after_parts(line: str) -> None:
    if line.startswith("parsed"):
        raise Stopped


class Likes(SourceFormat):
    """Pairs without a dense feature."""

    @dataclass(frozen=True)
    class Settings:
        users: str = "integer"

    def describe(self, settings: Settings) -> TextLayout:
        return TextLayout((Label("liked"), Sparse("user", Values(settings.users)), Sparse("film")), "|")


LIKES = f"{__name__}:Likes"


@pytest.mark.usefixtures("shop")
def test_another_format_does_not_go_on(tmp_path: Path) -> None:
    source = write(tmp_path / "clicks", random_rows(30))
    with pytest.raises(Stopped):
        prepare_clicks([source], tmp_path / "out", SHOP, stop_after_parts)
    for settings, named in (
        (
            PrepareSettings("criteo", min_count=1, test_fraction=0.2),
            "source_format = 'shop_clicks:ShopClicks' instead of 'criteo'",
        ),
        (
            PrepareSettings(LIKES, min_count=1, test_fraction=0.2),
            f"source_format = 'shop_clicks:ShopClicks' instead of '{LIKES}'",
        ),
    ):
        with pytest.raises(DataError, match=f"holds an unfinished preparation with {named}; choose another"):
            prepare_clicks([source], tmp_path / "out", settings, silent)


def test_a_format_whose_description_was_changed_does_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "likes").write_text("1|2|a\n0|3|b\n")
    source, likes = str(tmp_path / "likes"), PrepareSettings(LIKES)
    with pytest.raises(Stopped):
        prepare_clicks([source], tmp_path / "out", likes, stop_after_parts)
    changed = TextLayout((Label("liked"), Sparse("user"), Sparse("film")), "|")
    with monkeypatch.context() as patch:
        patch.setattr(Likes, "describe", lambda *_: changed)
        named = r"a format with Sparse\(name='user', values=<Values.INTEGER: .*, limits=None\) instead of Sparse\("
        with pytest.raises(DataError, match=f"holds an unfinished preparation of {named}"):
            prepare_clicks([source], tmp_path / "out", likes, silent)
    assert prepare_clicks([source], tmp_path / "out", likes, silent).rows("train") == 2


def test_other_settings_of_a_format_are_another_preparation(tmp_path: Path) -> None:
    (tmp_path / "likes").write_text("1|2|a\n0|3|b\n")
    source = str(tmp_path / "likes")
    prepare_clicks([source], tmp_path / "out", PrepareSettings(LIKES), silent)
    with pytest.raises(DataError, match=r"format_options = \{'users': 'integer'\} instead of \{'users': 'text'\}"):
        prepare_clicks([source], tmp_path / "out", PrepareSettings(LIKES, ("users=text",)), silent)


def test_settings_with_several_values_are_those_that_were_recorded(tmp_path: Path) -> None:
    (tmp_path / "likes").write_text("1|2|a\n0|3|b\n")
    manifest = prepare_clicks([str(tmp_path / "likes")], tmp_path / "out", PrepareSettings(LIKES), silent)
    several = replace(manifest, settings={"format_options": {"names": ["a", "b"]}})
    save_manifest(tmp_path / "out", several)
    wanted = PreparationState(several.inputs, {"format_options": {"names": ("a", "b")}}, (), 1)
    assert load_finished(tmp_path / "out", wanted) == several
    with pytest.raises(DataError, match=r"\{'names': \['a', 'b'\]\} instead of \{'names': \['a'\]\}"):
        load_finished(tmp_path / "out", replace(wanted, settings={"format_options": {"names": ("a",)}}))


@pytest.mark.parametrize("compression", ["lzf", "none"])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_format_without_dense_features(tmp_path: Path, backend: str, compression: str) -> None:
    (tmp_path / "likes").write_text("1|2|a b\n0|3|\n1|2|a b\n")
    settings = PrepareSettings(LIKES, test_fraction=0.4, min_count=1, compression=compression, backend=backend)
    manifest = prepare_clicks([str(tmp_path / "likes")], tmp_path / "out", settings, silent)
    verify_shards(tmp_path / "out", manifest, "full")
    label, dense, sparse = read_all(tmp_path / "out", manifest)
    assert label.tolist() == [1, 0, 1]
    assert dense.shape == (3, 0)
    assert sparse.tolist() == [[1, 1], [2, 0], [1, 1]]


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("avazu", (), "--format = 'avazu': use one of criteo, criteo_buckets, criteo_terabyte, sequences, or"),
        ("nowhere:Format", (), "--format = 'nowhere:Format': there is no module nowhere"),
        ("shop_clicks:Other", (), r"shop_clicks \(.*shop_clicks\.py\) has no Other"),
        ("collections:Counter", (), "--format = 'collections:Counter': is no subclass of .*SourceFormat"),
        ("criteo", ("separator=;",), "separator = ';': no such setting of criteo; it has no settings"),
        ("shop_clicks:ShopClicks", ("quotes=1",), "quotes = '1': no such setting .*; its settings are separator"),
        ("shop_clicks:ShopClicks", ("separator",), "--format-option 'separator': has no value"),
        ("shop_clicks:ShopClicks", ("separator=;", "separator=,"), "separator = ',': is given twice"),
        (LIKES, ("users=float",), "Likes': its describe\\(\\) fails: ValueError: 'float' is not a valid Values"),
        ("shop_clicks:ShopClicks", ("separator=12",), "source format: the separator is '12'"),
    ],
)
@pytest.mark.usefixtures("shop")
def test_what_names_no_format_is_refused(tmp_path: Path, name: str, options: tuple[str, ...], problem: str) -> None:
    source = write(tmp_path / "clicks", random_rows(3))
    with pytest.raises(ConfigError, match=problem):
        prepare_clicks([source], tmp_path / "out", PrepareSettings(name, options), silent)
    assert not (tmp_path / "out").exists()


class WithHeader(SourceFormat):
    """A format in code whose files have headers."""

    def describe(self, settings: object) -> TextLayout:  # noqa: ARG002  # it has none
        return TextLayout((Label("label"), Sparse("user"), Sparse("item")), separator=",", header=True)


@pytest.mark.parametrize("header", ["user,item", "label,user,item"])
@pytest.mark.parametrize("native", [False, True])
def test_a_file_to_score_begins_with_its_header(tmp_path: Path, header: str, native: bool) -> None:
    """As one with labels does: no empty line stands before it."""
    file = tmp_path / "file"
    row = "q,a" if header == "user,item" else "0,q,a"
    file.write_text(f"{header}\n\n{row}\n")
    how = WithHeader(None).open_unlabelled(file, native)
    assert how.header
    assert len(how.parse(f"\n{row}\n".encode())[0]) == 1
    file.write_text(f"\n{header}\n{row}\n")
    with pytest.raises(DataError, match="/file:1: the header is '' instead of 'label,user,item'"):
        WithHeader(None).open_unlabelled(file, native)
