"""The look-ups that are counted of shards are those of a slow count."""

import re
from collections import Counter
from pathlib import Path

import pytest

import bagpipe_hpc.tools.inspection.access_counts
from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.errors import DataError
from bagpipe_hpc.rows.access_statistics import read_statistics
from bagpipe_hpc.storage.shards import counting
from bagpipe_hpc.tools.inspection.access_counts import save_statistics
from tests.ragged_shards import write_ragged
from tests.unit.tools.inspection.test_look_ups import look_ups_of


def test_look_ups_and_samples_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bagpipe_hpc.tools.inspection.access_counts, "_READ_SAMPLES", 24)
    manifest = write_ragged(tmp_path, samples=150, test_samples=10)
    assert main(["inspect", str(tmp_path), "--statistics", str(tmp_path / "a.npz")]) == 0
    samples = look_ups_of(tmp_path, manifest, "train")
    found = read_statistics(tmp_path / "a.npz")
    assert (found.data, found.samples) == (manifest.digest("train"), 150)
    counts = Counter(row for sample in samples for row in sample)
    hottest = found.hottest(info.name for info in manifest.tables)
    for number, (info, of_table) in enumerate(zip(manifest.tables, hottest, strict=True)):
        table = found.of(info.name, info.rows)
        own = {id_: count for (of, id_), count in counts.items() if of == number}
        assert table.look_ups == sum(own.values())
        assert table.samples_with == sum(any(of == number for of, _ in sample) for sample in samples)
        order = sorted(own, key=lambda id_: (-own[id_], id_))
        assert [part.tolist() for part in of_table] == [order, [own[id_] for id_ in order]]
    assert f"{sum(counts.values())} look-ups of {len(counts)} rows" in capsys.readouterr().out


def test_shards_without_training_rows_are_refused(tmp_path: Path) -> None:
    manifest = write_ragged(tmp_path, samples=0, test_samples=5)
    with pytest.raises(DataError, match="has no training samples to count"):
        save_statistics(tmp_path, manifest, tmp_path / "a.npz")


def test_tables_beyond_this_hosts_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = write_ragged(tmp_path, samples=5, test_samples=5)
    rows = sum(info.rows for info in manifest.tables)
    for option, row_bytes in (([f"--statistics={tmp_path}/a.npz"], 8), (["--look-ups"], 24)):
        monkeypatch.setattr(counting, "free_bytes", lambda least=row_bytes * rows: least - 1)
        assert main(["inspect", str(tmp_path), *option]) == 2
        assert f"to count the look-ups of {rows} rows takes" in capsys.readouterr().err


def test_a_file_that_could_not_be_written_is_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_ragged(tmp_path, samples=5, test_samples=5)
    (tmp_path / "a.npz").touch()
    for options, problem in (
        (["--statistics", f"{tmp_path}/a.txt"], "use a name that ends in .npz"),
        (["--statistics", f"{tmp_path}/a.npz"], "is there already"),
        (["--statistics", f"{tmp_path}/b.npz", "--json", f"{tmp_path}/b.npz"], "json = .* is the file of --statistics"),
    ):
        assert main(["inspect", str(tmp_path), *options]) == 2
        assert re.search(problem, capsys.readouterr().err)
