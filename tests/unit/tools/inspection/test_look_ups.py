"""What is measured of look-ups is what a slow count gives; text, drawing and JSON say it."""

import json
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import bagpipe_hpc.tools.inspection.look_ups
from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from bagpipe_hpc.tools.inspection.look_up_plot import plot_svg
from bagpipe_hpc.tools.inspection.look_up_text import look_up_lines
from bagpipe_hpc.tools.inspection.look_ups import QUANTILES, LookUps, measure_look_ups
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.click_rows import random_rows
from tests.ragged_shards import TABLES, write_ragged
from tests.unit.data_prep.plain_preparation import silent, write_text


def look_ups_of(directory: Path, manifest: ShardManifest, split: str) -> list[list[tuple[int, int]]]:
    """The rows, as table and id, that each sample looks up."""
    with ClickShards(directory, manifest, split) as shards:
        bags = shards.read_look_ups(0, shards.rows)
    samples: list[list[tuple[int, int]]] = [[] for _ in range(bags.samples)]
    for sample, column, id_ in zip(bags.sample_of_value, bags.columns, bags.values, strict=True):
        samples[sample].append((manifest.feature_tables[column], int(id_)))
    return samples


def assert_measured(found: LookUps, samples: list[list[tuple[int, int]]], manifest: ShardManifest, size: int) -> None:
    counts = Counter(row for sample in samples for row in sample)
    for number, (table, measured) in enumerate(zip(manifest.tables, found.tables, strict=True)):
        own = sorted((count for (of, _), count in counts.items() if of == number), reverse=True)
        assert (measured.table, measured.ids, measured.used) == (table.name, table.rows, len(own))
        assert measured.look_ups == sum(own)
        for share, top in zip((0.001, 0.01, 0.1), measured.top, strict=True):
            ids = max(1, int(np.ceil(share * table.rows)))
            assert top == pytest.approx(sum(own[:ids]) / max(1, sum(own)))
        assert measured.curve[-1] == (1.0, 1.0 if own else 0.0)
    assert found.total.look_ups == sum(counts.values())
    distances, first, last = [], 0, {}
    for batch, begin in enumerate(range(0, len(samples), size)):
        for row in {row for sample in samples[begin : begin + size] for row in sample}:
            if row in last:
                distances.append(batch - last[row])
            else:
                first += 1
            last[row] = batch
    uses, reuse = len(distances) + first, found.reuse
    assert (reuse.batch_size, reuse.batches, reuse.uses) == (size, -(-len(samples) // size), uses)
    assert reuse.first == pytest.approx(first / uses)
    for limit, share in zip((1, 10, 40, 200), reuse.within, strict=True):
        assert share == pytest.approx(sum(distance <= limit for distance in distances) / uses)
    expected = [sorted(distances)[int(np.ceil(share * len(distances))) - 1] for share in QUANTILES] if distances else []
    assert list(reuse.quantiles) == expected


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_ragged_look_ups_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(bagpipe_hpc.tools.inspection.look_ups, "_READ_SAMPLES", 24)
    manifest = write_ragged(tmp_path, samples=150, test_samples=0, labels=("click", "buy"))
    found = measure_look_ups(tmp_path, manifest, size)
    assert (found.split, found.samples) == ("train", 150)
    assert found.label_rates == pytest.approx(manifest.label_rates)
    assert_measured(found, look_ups_of(tmp_path, manifest, "train"), manifest, size)
    assert [table.missing for table in found.tables] == [None] * len(TABLES)  # rare or missing: nobody knows


@pytest.mark.parametrize(("limit", "buckets"), [(None, 0), (None, 2), (12, 0)])
def test_missing_values_are_told_from_rare_ones(tmp_path: Path, limit: int | None, buckets: int) -> None:
    lines = random_rows(80, seed=1)
    chosen = PrepareSettings(min_count=4, max_rows_per_table=limit, unseen_buckets=buckets)
    manifest = prepare_clicks([write_text(tmp_path / "clicks", lines)], tmp_path / "out", chosen, silent)
    found = measure_look_ups(tmp_path / "out", manifest, 10)
    samples = look_ups_of(tmp_path / "out", manifest, "train")
    assert_measured(found, samples, manifest, 10)
    for number, table in enumerate(found.tables):
        absent = sum(not line.split("\t")[14 + number] for line in lines[:72])
        assert table.missing == pytest.approx(absent / 72)
        others = sum(sample[number][1] <= (0 if limit else buckets) for sample in samples)
        assert table.without_id == pytest.approx(others / 72)
    assert found.total.missing == pytest.approx(sum(table.missing or 0 for table in found.tables) / 26)
    # Rows of a directory like this one: nothing says which of id 0 are missing, and all of them are for tests.
    later = PrepareSettings(like=tmp_path / "out")
    manifest = prepare_clicks([str(tmp_path / "clicks")], tmp_path / "later", later, silent)
    found = measure_look_ups(tmp_path / "later", manifest, 10)
    assert (found.split, found.samples) == ("test", 80)
    told = {table.missing is not None for table in found.tables if table.without_id}
    assert told <= ({True} if buckets or limit else {False})


def test_text_drawing_and_json_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = write_ragged(tmp_path / "shards", samples=90)
    outputs = ["--plot", str(tmp_path / "plot.svg"), "--json", str(tmp_path / "found.json")]
    assert main(["inspect", str(tmp_path / "shards"), "--batch-size", "8", *outputs]) == 0
    found = measure_look_ups(tmp_path / "shards", manifest, 8)
    said = capsys.readouterr().out
    assert said.endswith("\n".join(look_up_lines(found)) + "\n")
    assert "look-ups of the train split: 90 samples, label rate" in said
    assert f"used in the batch before         {found.reuse.within[0]:.2%}" in said
    assert (tmp_path / "plot.svg").read_text() == plot_svg(found)
    saved = json.loads((tmp_path / "found.json").read_text())
    assert saved["reuse"]["within"] == list(found.reuse.within)
    assert [table["table"] for table in saved["tables"]] == ["user", "item", "genre"]
    drawing = ET.fromstring(plot_svg(found))
    assert len(drawing.findall("{http://www.w3.org/2000/svg}polyline")) == 5
    assert main(["inspect", str(tmp_path / "shards")]) == 0
    assert "reuse" not in capsys.readouterr().out


def test_names_are_escaped_in_the_drawing(tmp_path: Path) -> None:
    from dataclasses import replace

    manifest = write_ragged(tmp_path)
    found = measure_look_ups(tmp_path, manifest, 8)
    named = replace(found, tables=tuple(replace(table, table="<b>&\x1b") for table in found.tables))
    assert "&lt;b&gt;&amp;" in plot_svg(named)
    ET.fromstring(plot_svg(named))


def test_no_samples_are_refused(tmp_path: Path) -> None:
    write_ragged(tmp_path, samples=0, test_samples=0)
    with pytest.raises(DataError, match="has no samples to measure"):
        measure_look_ups(tmp_path, load_manifest(tmp_path), 8)
