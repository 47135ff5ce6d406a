"""What a command found: tables for a reader, and one JSON line with the conditions for everything else."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bagpipe_hpc.errors import refused
from bagpipe_hpc.telemetry.results import strict_json
from bagpipe_hpc.terminal import is_shown
from bagpipe_hpc.tools.conditions import conditions
from bagpipe_hpc.tools.text_table import aligned


@dataclass
class Report:
    """Tables and figures of one command.

    Attributes:
        benchmark: the command's name.
        figures: content of the JSON line besides the conditions; the keys of numbers name their units.
        lines: the printed tables.
    """

    benchmark: str
    figures: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def table(self, title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table; all columns but the first are numbers."""
        self.lines += ["", title, *aligned([headings, *rows], right=range(1, len(headings)))]

    def finish(self, save: Path | None) -> None:
        """Print the tables, and append the JSON line to `save`, whose folder must exist.

        The line is printed last as well, but not on a terminal, where it would push the tables out of sight.

        Raises:
            FileError: `save` cannot be written.
        """
        line = strict_json({"benchmark": self.benchmark} | conditions() | self.figures)
        printed = self.lines if is_shown() else [*self.lines, "", line]
        print("\n".join(printed).lstrip("\n"), flush=True)
        if save is not None:
            try:
                with save.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
            except OSError as error:
                raise refused(error, save) from error


def median(values: Sequence[float]) -> float:
    """Median of several runs, rounded to four significant digits for the JSON line."""
    return float(f"{statistics.median(values):.4g}")
