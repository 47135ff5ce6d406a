"""A killed preparation goes on and ends the same, as itself alone: other inputs, settings and processes are refused."""

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import data_prep.parsed_rows
import data_prep.stages.parse
from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.errors import ConfigError, DataError
from bagpipe_hpc.kernels.shared_library import is_built
from bagpipe_hpc.storage.run_lock import Owner, RunLock
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.terminal import printable
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.ranks.board import Stage, Tell
from tests.click_rows import random_rows
from tests.unit.data_prep.plain_preparation import (
    KilledError,
    assert_holds,
    kill_at,
    prepare_naively,
    silent,
    small_blocks,
    write_text,
)


@pytest.mark.parametrize(
    ("word", "times", "compress"),
    [
        ("parsed", 1, bytes),
        ("parsed", 3, bytes),
        ("parsed", 3, gzip.compress),
        ("parsed", 7, bytes),
        ("counted", 1, bytes),
        ("counted", 6, bytes),
        ("built", 1, bytes),
        ("wrote", 1, bytes),
        ("wrote", 6, bytes),
    ],
)
def test_a_killed_preparation_goes_on_and_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, times: int, compress: Callable[[bytes], bytes]
) -> None:
    """The plain text has ranges, and is killed in the midst of one."""
    small_blocks(monkeypatch, part_rows=15, range_bytes=9000)
    lines = random_rows(100, seed=4)
    (tmp_path / "clicks").write_bytes(compress("\n".join(lines).encode()))
    source, chosen = str(tmp_path / "clicks"), PrepareSettings(rows_per_shard=20, compression="gzip")
    whole = prepare_clicks([source], tmp_path / "whole", chosen, silent)

    out = tmp_path / "out"
    with pytest.raises(KilledError):
        prepare_clicks([source], out, chosen, kill_at(word, times))
    (out / ".train-00009.h5.77.partial").touch()
    finished = {path: path.stat() for path in [*out.glob("*.h5"), *out.glob("parsed/*.arrow")]}
    with pytest.raises(KilledError):  # A second time, at once.
        prepare_clicks([source], out, chosen, kill_at("going on"))
    resumed = prepare_clicks([source], out, chosen, silent)
    assert resumed == whole  # Checksums included: the files are the same, byte for byte.
    assert_holds(out, resumed, prepare_naively(lines, 2, 0.1))
    for path, before in finished.items():
        if path.suffix == ".h5":
            assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert not list(out.glob(".*"))


@pytest.mark.parametrize("killed", [False, True])
def test_rows_keep_their_order_where_numbers_of_ranges_have_more_digits_than_names_foresee(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    small_blocks(monkeypatch, part_rows=15, range_bytes=1000)  # more than ten ranges
    for module in (data_prep.parsed_rows, data_prep.stages.parse):
        monkeypatch.setattr(module, "part_name", "rows-{}-{}".format)
    lines = random_rows(100, seed=4)
    source, chosen = write_text(tmp_path / "clicks", lines), PrepareSettings()
    if killed:
        with pytest.raises(KilledError):
            prepare_clicks([source], tmp_path / "out", chosen, kill_at("counted"))
    manifest = prepare_clicks([source], tmp_path / "out", chosen, silent)
    assert_holds(tmp_path / "out", manifest, prepare_naively(lines, 2, 0.1))


@pytest.mark.parametrize("lost", ["", "vocabularies.h5", "waiting.h5"])
def test_finished_vocabularies_are_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    small_blocks(monkeypatch, part_rows=30)
    lines = random_rows(100, seed=4)
    source, chosen = write_text(tmp_path / "clicks", lines), PrepareSettings(rows_per_shard=20)
    with pytest.raises(KilledError):
        prepare_clicks([source], tmp_path / "out", chosen, kill_at("wrote"))
    if lost:
        (tmp_path / "out" / lost).unlink()
    progress: list[str] = []
    manifest = prepare_clicks([source], tmp_path / "out", chosen, progress.append)
    assert any(line.startswith("built") for line in progress) == bool(lost)
    assert manifest.waiting is not None
    assert_holds(tmp_path / "out", manifest, prepare_naively(lines, 2, 0.1))


def test_preparing_again_changes_nothing(tmp_path: Path) -> None:
    source = write_text(tmp_path / "clicks", random_rows(30, seed=4))
    first = prepare_clicks([source], tmp_path / "out", PrepareSettings(), silent)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    progress: list[str] = []
    assert prepare_clicks([source], tmp_path / "out", PrepareSettings(), progress.append) == first
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before
    assert "already prepared" in progress[0]


@pytest.mark.parametrize(
    "name", ["clicks\u00a0of today", "two\nlines", "back\\slash", "d:clicks", "\x1b[31mred", "\u202eturned"]
)
def test_inputs_may_have_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """The folder is finished, read, found again, and gone on with after a kill; no name commands a terminal."""
    small_blocks(monkeypatch, part_rows=10)
    lines = random_rows(30, seed=4)
    source, killed = write_text(tmp_path / name, lines), tmp_path / "killed"
    for out in (tmp_path / "out", killed):
        if out == killed:
            with pytest.raises(KilledError):
                prepare_clicks([source], out, PrepareSettings(), kill_at("counted"))
        assert_holds(out, prepare_clicks([source], out, PrepareSettings(), silent), prepare_naively(lines, 2, 0.1))
        told: list[str] = []
        prepare_clicks([source], out, PrepareSettings(), told.append)
        assert "already prepared" in told[0]
    assert load_manifest(killed).inputs[0].file == name
    assert main(["inspect", str(killed)]) == 0
    (shown,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("inputs"))
    assert shown.removeprefix("inputs").strip() == printable(name, is_layout_kept=False)
    write_text(tmp_path / name, lines[1:])
    with pytest.raises(DataError, match=re.escape(f"changed: {printable(name, is_layout_kept=False)}); ")):
        prepare_clicks([source], killed, PrepareSettings(), silent)


@pytest.mark.parametrize("finished", [True, False])
def test_other_settings_or_inputs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: bool) -> None:
    small_blocks(monkeypatch, part_rows=10)
    source = write_text(tmp_path / "clicks", random_rows(30, seed=4))
    out = tmp_path / "out"
    if finished:
        prepare_clicks([source], out, PrepareSettings(), silent)
    else:
        with pytest.raises(KilledError):
            prepare_clicks([source], out, PrepareSettings(), kill_at("parsed"))
    with pytest.raises(DataError, match=r"min_count = 2 instead of 5; choose another output folder, or remove"):
        prepare_clicks([source], out, PrepareSettings(min_count=5), silent)
    write_text(tmp_path / "clicks", random_rows(31, seed=4))
    with pytest.raises(DataError, match=r"other inputs \(different or changed: clicks\)"):
        prepare_clicks([source], out, PrepareSettings(), silent)


@pytest.mark.skipif(not is_built("click_text"), reason="native code was not built")
@pytest.mark.parametrize("word", ["parsed", "counted", "built", "wrote"])
def test_one_backend_goes_on_where_the_other_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    small_blocks(monkeypatch, part_rows=30)
    lines = random_rows(100, seed=4)
    source = write_text(tmp_path / "clicks", lines)
    with pytest.raises(KilledError):
        prepare_clicks(
            [source],
            tmp_path / "out",
            PrepareSettings(rows_per_shard=20, backend="native"),
            kill_at(word),
        )
    manifest = prepare_clicks(
        [source], tmp_path / "out", PrepareSettings(rows_per_shard=20, backend="reference"), silent
    )
    assert_holds(tmp_path / "out", manifest, prepare_naively(lines, 2, 0.1))


def test_parsed_rows_that_were_replaced_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch, part_rows=30)
    source = write_text(tmp_path / "clicks", random_rows(100, seed=4))
    with pytest.raises(KilledError):
        prepare_clicks([source], tmp_path / "out", PrepareSettings(), kill_at("built"))
    parts = sorted((tmp_path / "out" / "parsed").glob("*.arrow"))
    parts[0].write_bytes(parts[-1].read_bytes())
    with pytest.raises(DataError, match=r"rows-000000-00000.arrow: the parsed rows .* rows instead of "):
        prepare_clicks([source], tmp_path / "out", PrepareSettings(), silent)


def test_a_second_preparation_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    source, out = write_text(tmp_path / "clicks", random_rows(30, seed=4)), tmp_path / "out"
    out.mkdir()
    other = RunLock(out, lambda _: None)
    other.take()
    with pytest.raises(ConfigError, match=r"run.lock: another run uses this output folder .*choose another --output"):
        prepare_clicks([source], out, PrepareSettings(), silent)
    assert [path.name for path in out.iterdir()] == ["run.lock"]
    other.release()
    prepare_clicks([source], out, PrepareSettings(), silent)
    assert not (out / "run.lock").exists()


def test_the_lock_of_a_dead_preparation_counts_no_more(tmp_path: Path) -> None:
    """Also in a folder that it has finished."""
    source, out = write_text(tmp_path / "clicks", random_rows(30, seed=4)), tmp_path / "out"
    dead = json.dumps(asdict(replace(Owner.this_process(), started=1)))
    out.mkdir()
    for _ in range(2):
        (out / "run.lock").write_text(dead)
        prepare_clicks([source], out, PrepareSettings(), silent)
        assert not (out / "run.lock").exists()


def test_a_part_without_its_note_is_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so are those behind it in its range."""
    small_blocks(monkeypatch, part_rows=15, range_bytes=9000)
    source, out = write_text(tmp_path / "clicks", random_rows(100, seed=4)), tmp_path / "out"
    with pytest.raises(KilledError):
        prepare_clicks([source], out, PrepareSettings(), kill_at("built"))
    notes = sorted(path.name for path in (out / "parsed").glob("rows-*.json"))
    first = [name for name in notes if name.startswith("rows-000000-")]
    assert len(first) == 3
    (out / "parsed" / first[1]).unlink()
    lines: list[str] = []
    manifest = prepare_clicks([source], out, PrepareSettings(), lines.append)
    assert sum(line.startswith("parsed") for line in lines) == 2
    assert_holds(out, manifest, prepare_naively(random_rows(100, seed=4), 2, 0.1))


@pytest.mark.parametrize("tell_every_s", [0.0, 1e9], ids=["of each block", "of each part"])
@pytest.mark.parametrize("killed", [False, True])
def test_every_row_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool, tell_every_s: float
) -> None:
    """Those that an earlier run has parsed when the stage begins. Of bytes, what a kill leaves unused is read again."""
    told: list[Tell] = []
    stages: list[Stage] = []

    def noted(kind: type[Any], found: list[Any]) -> Callable[..., Any]:
        return lambda *arguments, **named: found.append(kind(*arguments, **named)) or found[-1]

    small_blocks(monkeypatch, part_rows=15, range_bytes=9000)
    monkeypatch.setattr(data_prep.stages.parse, "_TELL_EVERY_S", tell_every_s)
    source, out = Path(write_text(tmp_path / "clicks", random_rows(100, seed=4))), tmp_path / "out"
    if killed:
        with pytest.raises(KilledError):
            prepare_clicks([str(source)], out, PrepareSettings(), kill_at("parsed", 2))
    monkeypatch.setattr(data_prep.stages.parse, "Tell", noted(Tell, told))
    monkeypatch.setattr(data_prep.stages.parse, "Stage", noted(Stage, stages))
    prepare_clicks([str(source)], out, PrepareSettings(), silent)
    (stage,) = stages
    assert (stage.rows > 0) == killed
    assert stage.rows + sum(one.rows for one in told) == 100
    again = stage.done + sum(one.done for one in told) - source.stat().st_size
    assert 0 <= again < (2000 if killed else 1)
