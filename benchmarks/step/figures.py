"""What the records of a whole job say of its steady state, and what the links between its hosts allow at best.

Pure functions of what a run writes (docs/outputs.md). Times in milliseconds, rows and bytes a step.
"""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bagpipe_hpc.rows.record import RowRecord
from benchmarks.jobs.step_range import StepRange

RECORD_STEPS = 20
"""Steps between two records of a measured run (`train.log_every_steps`)."""


@dataclass(frozen=True)
class StepFigures:
    """Means over the steps that count; times are means over the trainers, rows are those of all trainers.

    Attributes:
        step_ms: from one step to the next.
        compute_ms: what is left of it without the two waits.
        wait_rows_ms: until the rows of a batch are there.
        wait_reductions_ms: for sums of gradients, of rows and of dense weights.
        rows_fetched: got from the servers.
        rows_written_back: put to the servers.
        rows_reduced: whose gradients are summed over the trainers.
    """

    step_ms: float
    compute_ms: float
    wait_rows_ms: float
    wait_reductions_ms: float
    rows_fetched: float
    rows_written_back: float
    rows_reduced: float

    @classmethod
    def of_run(cls, events: Sequence[dict[str, Any]], steps: StepRange) -> "StepFigures":
        """From the lines of a run's `metrics.jsonl`."""
        counted = [
            event["of_trainers"] for event in events if event["event"] == "progress" and steps.counts(event["step"])
        ]
        trainers = counted[0]["number"]

        def mean(*names: str) -> float:
            return statistics.fmean(sum(record["mean"][name] for name in names) for record in counted)

        return cls(
            step_ms=mean("total_ms"),
            compute_ms=mean("compute_ms"),
            wait_rows_ms=mean("wait_rows_ms"),
            wait_reductions_ms=mean("wait_reductions_ms"),
            rows_fetched=mean("rows_fetched") * trainers,
            rows_written_back=mean("rows_written_back") * trainers,
            rows_reduced=mean("reduced_now", "reduced_later") if trainers > 1 else 0.0,
        )

    @classmethod
    def median(cls, runs: Sequence["StepFigures"]) -> "StepFigures":
        """The median of each figure."""
        every = [asdict(run) for run in runs]
        return cls(**{name: statistics.median(figures[name] for figures in every) for name in every[0]})


@dataclass(frozen=True)
class Traffic:
    """What a step sends between hosts: bytes on the busiest link, in its busier direction.

    Attributes:
        row_bytes: rows, between servers and trainers.
        reduction_bytes: sums of gradients, between trainers; 0 where they share a host.
    """

    row_bytes: float
    reduction_bytes: float

    @classmethod
    def of_step(
        cls,
        figures: StepFigures,
        record: RowRecord,
        dense_weights: int,
        trainers: int,
        *,
        spread: bool,
        server_hosts: int = 1,
    ) -> "Traffic":
        """From a step's rows.

        Servers share one host, or several evenly. Trainers share another, over whose link all rows come and go; or they
        are spread, one a host, and their sums cross links, too. Links carry both directions at once.

        Args:
            figures: of a step.
            record: what travels with a row.
            dense_weights: number of weights of the dense model.
            trainers: number T.
            spread: each trainer has a host of its own.
            server_hosts: hosts with servers.
        """
        moved = max(figures.rows_fetched, figures.rows_written_back) * record.bytes
        if not spread or trainers == 1:
            return cls(moved, 0.0)
        # What each trainer sends in a good sum over T of them: its shares of the parts, then its share of the sum.
        summed = 4 * (figures.rows_reduced * record.embedding_dim + dense_weights)
        reductions = 2 * (trainers - 1) / trainers * summed
        own = moved / trainers
        of_servers = moved / server_hosts
        return cls(own, reductions) if own + reductions > of_servers else cls(of_servers, 0.0)

    def link_ms(self, bytes_per_s: float) -> float:
        """Time that the busiest link needs for a step."""
        return (self.row_bytes + self.reduction_bytes) / bytes_per_s * 1e3
