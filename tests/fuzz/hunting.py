"""Draws inputs by hypothesis from a fixed seed: always the same ones, few in `make test`, more in `make test-all`.

`FUZZ_SEED=N` draws others, `FUZZ_TIMES=N` so many times as many. Where `FUZZ_FAULTS` names a file, faults are listed
there, one an input, and the hunt goes on; else the first one fails the test, with the smallest input that has it.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.commands import fault_of, run_limited

SEED, TIMES = int(os.environ.get("FUZZ_SEED", "1")), int(os.environ.get("FUZZ_TIMES", "1"))
_FAULTS = os.environ.get("FUZZ_FAULTS", "")


def few_and_many(few: int, many: int) -> Any:
    """Gives a test the argument `examples`: few, unless these are 0, and as a slow test many."""
    slow = pytest.param(many, marks=pytest.mark.slow, id="many")
    return pytest.mark.parametrize("examples", [*([pytest.param(few, id="few")] if few else []), slow])


def hunt(examples: int, inputs: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Check so many drawn inputs."""

    @seed(SEED)
    @settings(max_examples=examples * TIMES, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(inputs)
    def holds(drawn: Any) -> None:
        check(drawn)

    holds()


def require_clear(
    folder: Path, commands: Sequence[Sequence[str]], names: Sequence[str] = (), drawn: object = None
) -> None:
    """Run commands, and fail where one of them does not end as it has to; `names` as for `fault_of`."""
    for ended in run_limited(folder, commands):
        fault = fault_of(ended, names)
        told = f"bagpipe {' '.join(ended.arguments)}\n{fault}: {drawn!r:.500}\n{ended.said}"
        if fault is not None and _FAULTS:
            with Path(_FAULTS).open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{told}\n{'=' * 80}\n")
        elif fault is not None:
            pytest.fail(told, pytrace=False)
