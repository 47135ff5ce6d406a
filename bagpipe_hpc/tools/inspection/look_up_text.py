"""Describes look-ups in plain text."""

from bagpipe_hpc.terminal import counted
from bagpipe_hpc.tools.inspection.look_ups import QUANTILES, TOP_SHARES, WITHIN_BATCHES, LookUps, TableLookUps
from bagpipe_hpc.tools.text_table import aligned


def look_up_lines(found: LookUps) -> list[str]:
    """Tables with their skew, and the distances between uses."""
    heads = [
        "table",
        "ids",
        "used",
        "look-ups",
        "missing",
        "without an id",
        *(f"top {top:.4g} %" for top in _percent()),
    ]
    rows = [_row(table) for table in (*found.tables, found.total)]
    reuse = found.reuse
    rates = ", ".join(f"{rate:.6f}" for rate in found.label_rates)
    lines = [f"look-ups of the {found.split} split: {found.samples} samples, label rate {rates}", ""]
    lines += [*aligned([tuple(heads), *rows], right=range(1, len(heads))), ""]
    lines.append(
        f"reuse of rows, by batches of {reuse.batch_size} samples in time order: {reuse.uses} uses (a row and a "
        f"batch) in {counted(reuse.batches, 'batch')}"
    )
    facts = [("first use of the row", f"{reuse.first:.2%}")]
    for limit, share in zip(WITHIN_BATCHES, reuse.within, strict=True):
        what = "used in the batch before" if limit == 1 else f"used at most {limit} batches before"
        facts.append((what, f"{share:.2%}"))
    if reuse.quantiles:
        told = (f"{share:.0%}: {distance}" for share, distance in zip(QUANTILES, reuse.quantiles, strict=True))
        facts.append(("batches between uses, quantiles", ", ".join(told)))
    return [*lines, *aligned(facts)]


def _percent() -> list[float]:
    return [100 * share for share in TOP_SHARES]


def _row(table: TableLookUps) -> tuple[str, ...]:
    missing = "unknown" if table.missing is None else f"{table.missing:.2%}"
    numbers = (str(number) for number in (table.ids, table.used, table.look_ups))
    return (table.table, *numbers, missing, f"{table.without_id:.2%}", *(f"{share:.1%}" for share in table.top))
