"""The tables of `bagpipe plan` have the figures of its JSON line, in its units."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.cli import commands as cli
from bagpipe_hpc.tools.policy_comparison.traffic import MOVED
from bagpipe_hpc.tools.text_table import size_text
from tests.unit.tools.small_clicks import small_config

SMALL = ["model.embedding_dim=8", "train.batch_size=50", "optimizer.rows=sgd", "cache.rows=2000"]
OPTIONS = ["--trainers", "2", "--lookahead", "1", "4", "40", "--gbit-per-s", "1", "10", "--server-nodes", "3"]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_config(tmp_path_factory.mktemp("telling"))


def planned(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[list[str], dict[str, Any]]:
    """The lines that are printed, and the JSON line."""
    assert cli.main(["plan", *map(str, arguments)]) == 0
    lines = capsys.readouterr().out.splitlines()
    return lines, json.loads(lines[-1])


def table_of(lines: list[str], title: str) -> list[list[str]]:
    """The headings and rows of a table; columns behind the first are right-aligned, and cells may be empty."""
    first = next(number for number, line in enumerate(lines) if line.startswith(title)) + 1
    rows = lines[first : lines.index("", first)]
    ends = [heading.end() for heading in re.finditer(r"\S+( \S+)*", rows[0])]
    width = max(map(len, rows))
    bounds = [0, max(re.match(r"\S+( \S+)*", row).end() for row in rows), *ends[1:-1], width]  # type: ignore[union-attr]
    return [[row[begin:end].strip() for begin, end in pairwise(bounds)] for row in rows]


@pytest.mark.parametrize("computes", [False, True])
def test_a_row_of_windows_has_their_figures(config: Path, capsys: pytest.CaptureFixture[str], computes: bool) -> None:
    computing = ["--compute-us-per-sample", "1000"] if computes else []
    lines, found = planned(capsys, config, *SMALL, *OPTIONS, *computing)
    headings, *rows = table_of(lines, "T = 2, rows home")
    of_time = ["ms", "hidden"] if computes else ["ms bare", "us hides"]
    assert headings[-4:] == [f"{what} @{gbit}" for gbit in (1, 10) for what in of_time]
    for row, one in zip(rows, found["outlooks"], strict=True):
        traffic = one["traffic"]
        links = [one[link][way] for link in ("trainer_link_bytes", "server_link_bytes") for way in ("come", "go")]
        times = [
            text
            for timing in one["timings"]
            for text in (
                (f"{1e3 * timing['prediction']['step_s']:.2f}", f"{timing['hidden']:.1%}")
                if computes
                else (f"{1e3 * timing['bare_s']:.2f}", f"{timing['hiding_us']:.2f}")
            )
        ]
        assert row == [
            str(one["lookahead"]),
            f"{traffic['hit_rate']:.1%}",
            f"{one['peak_rows']:,}" + ("" if one["fits"] else " !"),
            size_text(one["peak_rows"] * found["record_bytes"][0]),
            *(f"{traffic['rows'][kind]:,.1f}" for kind in MOVED),
            *(f"{size / 1e3:,.1f}" for size in (*links, traffic["oracle_bytes"])),
            *(times or ["-"] * 4),
        ]
    assert [(one["fits"], len(one["timings"])) for one in found["outlooks"]] == [(True, 2), (True, 2), (False, 0)]


def test_memory_of_ranks_is_told_in_megabytes_by_what_takes_it(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, found = planned(capsys, config, *SMALL, *OPTIONS)
    one, *others = found["memory"]
    assert [memory["gbit_per_s"] for memory in (one, *others)] == [1, 10]
    of_ranks = [value for kind in ("oracle", "server", "trainer") for value in one[kind].values()]
    assert not any(isinstance(value, str | bool) for value in of_ranks), "numbers alone"
    headings, *rows = table_of(lines, "MB of each rank, T = 2, S = 3, L = 4")
    told = {row[0]: dict(zip(headings[1:], row[1:], strict=True)) for row in rows}
    assert list(told) == ["oracle", "each server", "each trainer"]
    for of_rank in told.values():
        pieces = [float(size) for kind, size in of_rank.items() if kind != "all" and size]
        assert float(of_rank["all"]) == pytest.approx(sum(pieces), abs=0.05 * (1 + len(pieces)))
    for rank, kind, size in (
        ("oracle", "planner", one["oracle"]["planner_bytes"]),
        ("each server", "tables", one["server"]["tables_bytes"]),
        ("each trainer", "dense", one["trainer"]["dense_bytes"]),
        ("each trainer", "plans", one["plans_bytes"]),
        ("each trainer", "rows", one["rows_bytes"]),
    ):
        assert told[rank][kind] == f"{size / 1e6:.1f}"
    assert told["oracle"]["tables"] == told["each server"]["dense"] == "", "none"
