"""What `--save FILE` of `python -m benchmarks step` and `planner` has written, in the order in which it is drawn."""

import json
from pathlib import Path
from typing import Any

TRAINERS = 2
"""The number of trainers for which benchmark `step` measures every window."""
_LINK_TITLES = {"native": "one host", "10gbit": "10 Gbit/s", "1gbit": "1 Gbit/s, 0.5 ms"}

Cell = dict[str, Any]


def read_lines(path: Path, benchmark: str) -> list[dict[str, Any]]:
    """The lines of a benchmark."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["benchmark"] == benchmark]


def jobs_of(lines: list[dict[str, Any]]) -> list[Cell]:
    """The jobs of all lines of benchmark `step`, each as it was measured last."""
    found: dict[tuple[Any, ...], Cell] = {}
    for line in lines:
        for job in line["jobs"]:
            found[job["workload"], job["link"], job["trainers"], _is_spread(job), job["lookahead"]] = job
    return list(found.values())


def sweeps(jobs: list[Cell]) -> dict[str, dict[str, list[Cell]]]:
    """Jobs with all windows, by workload and by what their trainers are on, in the order of their windows."""
    found: dict[str, dict[str, list[Cell]]] = {}
    for job in sorted(jobs, key=lambda job: job["lookahead"]):
        if job["trainers"] == TRAINERS:
            title = _LINK_TITLES.get(job["link"], job["link"]) + ", a host each" * _is_spread(job)
            found.setdefault(job["workload"], {}).setdefault(title, []).append(job)
    return found


def _is_spread(job: Cell) -> bool:
    """Whether trainers have a host each; on one host none does, whatever was asked for."""
    return job["spread"] and job["link"] != "native"
