"""A preparation that cannot fit the disk is refused with the numbers, before a row is written."""

import gzip
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import data_prep.room
from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.storage.shards.manifest import load_manifest
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.schema.document import schema_of, to_document
from tests.click_rows import random_rows

ROWS = 3000
NONE = PrepareSettings(compression="none", test_fraction=0.0)


def free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(data_prep.room, "shutil", SimpleNamespace(disk_usage=lambda _: SimpleNamespace(free=size)))


def prepare(folder: Path, settings: PrepareSettings = NONE, made_for: Path | None = None) -> list[str]:
    lines: list[str] = []
    inputs = [str(folder / "a"), str(folder / "b")]
    prepare_clicks(inputs, folder / "out", settings, lines.append, made_for=made_for)
    return [line for line in lines if "needed there" in line]


def write(folder: Path, compress: Callable[[bytes], bytes] = bytes) -> None:
    for name in "ab":
        (folder / name).write_bytes(compress("\n".join(random_rows(ROWS // 2, seed=7)).encode()))


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_what_cannot_fit_is_refused_with_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: Callable[[bytes], bytes]
) -> None:
    """Shards take 157 bytes a row, parsed rows about as much."""
    write(tmp_path, compress)
    free(monkeypatch, ROWS * 157)
    said = r"out: about 95\d\.\d kB are needed there \(48\d.* kB for parsed rows .*\), and 471\.0 kB are free;"
    with pytest.raises(CapacityError, match=said):
        prepare(tmp_path)
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(CapacityError, match=r"^found\.csv: about"):
        prepare(tmp_path, made_for=Path("found.csv"))
    free(monkeypatch, ROWS * 157 * 3)
    assert prepare(tmp_path) == []


def test_counts_of_unseen_buckets_need_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 26 tables has a count of 8 bytes of each of its buckets."""
    write(tmp_path)
    buckets = 100_000
    settings = replace(NONE, unseen_buckets=buckets)
    free(monkeypatch, 1)
    said = r"about 21\.8 MB are needed there \(.*, 471\.\d kB for shards, 20\.8 MB for counts of unseen buckets\)"
    with pytest.raises(CapacityError, match=said):
        prepare(tmp_path, settings)
    free(monkeypatch, 25_000_000)
    assert prepare(tmp_path, settings) == []
    assert 8 * 26 * buckets < (tmp_path / "out" / "vocabularies.h5").stat().st_size < 9 * 26 * buckets


def test_unseen_buckets_that_memory_cannot_count_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    monkeypatch.setattr(data_prep.room, "free_bytes", lambda: 16_000_000)
    said = r"prepare: unseen-buckets = 1000001: .* takes 16\.0 MB of memory, and 16\.0 MB are free; use fewer"
    with pytest.raises(CapacityError, match=said):
        prepare(tmp_path, replace(NONE, unseen_buckets=1_000_001))
    assert list((tmp_path / "out").iterdir()) == []
    prepare(tmp_path, replace(NONE, unseen_buckets=1000))


def test_buckets_that_are_not_counted_need_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of later rows, whose vocabularies are copied, and of tables that are hashed where they are large."""
    write(tmp_path)
    first = [str(tmp_path / "a")]
    prepare_clicks(first, tmp_path / "first", replace(NONE, unseen_buckets=1000), lambda _: None)
    monkeypatch.setattr(data_prep.room, "free_bytes", lambda: 15_999)
    with pytest.raises(CapacityError, match="unseen-buckets = 1000"):
        prepare(tmp_path, replace(NONE, unseen_buckets=1000))
    assert prepare(tmp_path, replace(NONE, like=tmp_path / "first")) == []
    hashed = replace(NONE, unseen_buckets=1000, max_rows_per_table=1002)
    prepare_clicks(first, tmp_path / "hashed", hashed, lambda _: None)


def test_what_may_not_fit_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    free(monkeypatch, int(ROWS * 157 * 1.95))
    [line] = prepare(tmp_path)
    assert line.startswith(f"note: {tmp_path / 'out'}: about")
    assert line.endswith("the same command goes on once there is more")


def test_a_note_names_the_file_that_rows_are_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    free(monkeypatch, int(ROWS * 157 * 1.95))
    [line] = prepare(tmp_path, made_for=Path("found.csv"))
    assert line.startswith("note: found.csv: about")
    assert line.endswith("the same command starts anew once there is more")


def test_compressed_shards_need_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    free(monkeypatch, int(ROWS * 157 * 1.6))
    assert prepare(tmp_path, PrepareSettings()) == []


def test_lists_count_by_their_lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of two labels, a time, a weight, and lists of 40 ids, those of one column with weights."""
    kinds = {"a": "label", "b": "label", "when": "timestamp", "worth": "sample_weight", "seen": "sequence"}
    columns = [*({"name": name, "kind": kind} for name, kind in kinds.items()), {"name": "tags", "kind": "multi_hot"}]
    columns[-1]["weights"] = ":"
    row = f"0,1,5,2.5,{'|'.join(map(str, range(40)))},{'|'.join(f'{tag}:0.5' for tag in range(40))}\n"
    for name in "ab":
        (tmp_path / name).write_text(",".join([*kinds, "tags"]) + "\n" + row * ROWS)
    schema = to_document(schema_of({"columns": columns}, "a test"))
    settings = PrepareSettings("schema", schema=schema, compression="none", test_fraction=0.0)
    free(monkeypatch, 1)
    with pytest.raises(CapacityError) as refused:
        prepare(tmp_path, settings)
    [told] = re.findall(r"while it runs, ([0-9.]+) MB for shards\)", str(refused.value))
    free(monkeypatch, 1 << 40)
    assert prepare(tmp_path, settings) == []
    written = sum(shard.bytes for shard in load_manifest(tmp_path / "out").train) / 1e6
    assert written / 1.1 < float(told) < written * 1.1


class Stopped(Exception):  # noqa: N818  # nothing in the program catches it
    """Stands for a kill."""


def stop_behind(folder: Path, done: str, settings: PrepareSettings = NONE) -> None:
    """Prepare until something is done for the first time."""

    def stop(line: str) -> None:
        if line.startswith(done):
            raise Stopped

    with pytest.raises(Stopped):
        prepare_clicks([str(folder / "a"), str(folder / "b")], folder / "out", settings, stop)


@pytest.mark.parametrize(("done", "shares"), [("parsed", 1.0), ("wrote", 0.0)])
def test_a_run_that_goes_on_needs_room_for_the_rest_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: str, shares: float
) -> None:
    """Behind the parsed rows that is the shards; behind these nothing."""
    write(tmp_path)

    stop_behind(tmp_path, done)
    free(monkeypatch, int(ROWS * 157 * shares * 0.7))
    if shares:
        with pytest.raises(CapacityError, match=r"about 471\.\d kB are needed there \(0\.0 kB for parsed rows"):
            prepare(tmp_path)
    free(monkeypatch, int(ROWS * 157 * shares) + 1)
    assert prepare(tmp_path) == []


def test_buckets_that_were_counted_need_no_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vocabularies were there when the preparation was killed; before, their counts were still to come."""
    write(tmp_path)
    settings = replace(NONE, unseen_buckets=1000)
    stop_behind(tmp_path, "parsed", settings)
    with monkeypatch.context() as patch:
        patch.setattr(data_prep.room, "free_bytes", lambda: 15_999)
        with pytest.raises(CapacityError, match="unseen-buckets = 1000"):
            prepare(tmp_path, settings)
    stop_behind(tmp_path, "wrote", settings)
    monkeypatch.setattr(data_prep.room, "free_bytes", lambda: 0)
    free(monkeypatch, 1000)
    assert prepare(tmp_path, settings) == []
