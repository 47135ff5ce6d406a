"""The tables of `python -m benchmarks step`, made from the figures of its JSON line."""

from collections.abc import Sequence
from typing import Any

HEADINGS = (
    "window",
    "samples/s",
    "lowest - highest",
    "to L = 1",
    "step ms",
    "compute",
    "reductions",
    "rows",
    "fetched",
    "written",
    "link MB",
    "link ms",
    "hideable",
)
LEGEND = (
    "compute, reductions, rows: shares of the step. fetched, written: rows a step, of all trainers. link: bytes of a\n"
    "step on the busiest link in its busier direction, and the time that they take; hideable: no longer than compute."
)


def table_rows(cells: Sequence[dict[str, Any]]) -> dict[str, list[list[str]]]:
    """Titles, and below each the rows of one table: the windows of a workload, link and number of trainers."""
    tables: dict[str, list[list[str]]] = {}
    baselines = {_title(cell): cell["samples_per_s"] for cell in cells if cell["lookahead"] == 1}
    for cell in cells:
        title = _title(cell)
        tables.setdefault(title, []).append(_row(cell, baselines.get(title)))
    return tables


def _title(cell: dict[str, Any]) -> str:
    trainers = "1 trainer" if cell["trainers"] == 1 else f"{cell['trainers']} trainers"
    hosts = "" if cell["link"] == "native" or cell["trainers"] == 1 else ", a host each" * cell["spread"]
    return f"{cell['workload']}, {cell['link']}, {trainers}{hosts}"


def _row(cell: dict[str, Any], baseline: float | None) -> list[str]:
    rates = cell["samples_per_s_of_runs"]
    return [
        f"L = {cell['lookahead']}",
        f"{cell['samples_per_s']:,.0f}",
        f"{min(rates):,.0f} - {max(rates):,.0f}",
        f"{cell['samples_per_s'] / baseline:.2f}" if baseline else "-",
        f"{cell['step_ms']:.1f}",
        f"{cell['compute_share']:.1%}",
        f"{cell['reductions_share']:.1%}",
        f"{cell['rows_share']:.1%}",
        f"{cell['rows_fetched']:,}",
        f"{cell['rows_written_back']:,}",
        f"{(cell['row_bytes_on_link'] + cell['reduction_bytes_on_link']) / 1e6:.2f}",
        f"{cell['link_ms']:.1f}",
        "yes" if cell["link_ms"] <= cell["compute_ms"] else "no",
    ]
