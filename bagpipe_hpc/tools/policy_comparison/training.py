"""Trains a cell as a user would, and reads what the run wrote."""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bagpipe_hpc.errors import BagpipeError, ConfigError
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.telemetry.metrics_file import SUMMARY_NAME

RANKS, HOSTS = "{ranks}", "{hosts}"
"""Placeholders in a launcher's command: the number of ranks, and the ranks of each host, with oracle and servers on one
host and each trainer on one of its own."""

_TOLD = ".started.json"
"""Suffix of the file beside a run's folder that says how the run was started."""
_LAST_LINES = 15


@dataclass(frozen=True)
class Trained:
    """What a run reported.

    Attributes:
        samples_per_s: mean of the whole run, without evaluations.
        rows_wait: share of the time of steps in which trainers waited for rows.
        sums_wait: share in which they waited for other trainers: sums of gradients, and copies of rows.
        auc: AUC of the last evaluation; None where there was none, or it is undefined.
        log_loss: log loss of the last evaluation; None where there was none.
        moved: rows that a trainer fetched and wrote or added for a batch, means over trainers and steps.
    """

    samples_per_s: float
    rows_wait: float
    sums_wait: float
    auc: float | None
    log_loss: float | None
    moved: dict[str, float]

    @classmethod
    def of_summary(cls, summary: dict[str, Any]) -> "Trained":
        """From a run's `summary.json`."""
        trainers = summary["trainers"]
        total_ms, rows_ms, sums_ms = (
            sum(trainer[kind] for trainer in trainers) for kind in ("total_ms", "wait_rows_ms", "wait_reductions_ms")
        )
        last: dict[str, Any] = summary["evaluations"][-1] if summary["evaluations"] else {}
        moved = {
            kind: sum(trainer[name] for trainer in trainers) / len(trainers)
            for kind, name in (("fetched", "rows_fetched"), ("written", "rows_written_back"))
        }
        return cls(
            summary["samples_per_s"], rows_ms / total_ms if total_ms else 0.0, sums_ms / total_ms if total_ms else 0.0,
            last.get("auc"), last.get("log_loss"), moved,
        )  # fmt: skip


def launch_command(launcher: str, servers: int, trainers: int) -> list[str]:
    """The launcher's arguments for a run.

    Raises:
        ConfigError: the launcher has no placeholder for the number of ranks.
    """
    try:
        words = shlex.split(launcher)
    except ValueError as error:
        raise ConfigError(f"--launch {launcher!r}: {error}") from None
    if not any(RANKS in word for word in words):
        raise ConfigError(f"--launch {launcher!r}: says nowhere how many ranks; write {RANKS} there")
    hosts = ",".join(map(str, (1 + servers, *[1] * trainers)))
    return [word.replace(RANKS, str(1 + servers + trainers)).replace(HOSTS, hosts) for word in words]


def train(launch: Sequence[str], config: Path, overrides: Sequence[str], folder: Path) -> Trained:
    """Train, or take the run that is in `folder` if it was started with the same settings and has finished.

    Args:
        launch: the launcher's arguments.
        config: the configuration file.
        overrides: `section.field=value`; the output is `folder`.
        folder: where the run writes.

    Raises:
        BagpipeError: the run ended with an error; the message has what it printed.
        ConfigError: the folder holds another run.
    """
    told = {"config": config.read_text(encoding="utf-8"), "overrides": list(overrides), "launch": list(launch)}
    note, summary = folder.with_name(folder.name + _TOLD), folder / SUMMARY_NAME
    if note.exists() and json.loads(note.read_text(encoding="utf-8")) != told:
        raise ConfigError(
            f"{folder}: is a run with other settings; name another --output, or remove that folder and {note.name}"
        )
    if summary.exists() and not note.exists():
        raise ConfigError(
            f"{folder}: is a run, and {note.name} beside it, which tells its settings, is gone; name another --output, "
            "or remove that folder"
        )
    if not summary.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(note) as partial:
            partial.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        program = [sys.executable, "-m", "bagpipe_hpc", "train", str(config), *overrides]
        ended = subprocess.run(
            [*launch, *program],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if ended.returncode or not summary.exists():
            said = "\n".join(ended.stdout.splitlines()[-_LAST_LINES:])
            raise BagpipeError(f"{folder}: the run ended with status {ended.returncode}:\n{said}")
    return Trained.of_summary(json.loads(summary.read_text(encoding="utf-8")))
