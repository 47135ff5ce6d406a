"""Numbers that are none are null in JSON."""

import gc
import json
import math

import pytest

from bagpipe_hpc.telemetry.results import quality, strict_json


def test_undefined_numbers_are_null() -> None:
    value = {"auc": math.nan, "each": [1.5, math.inf, {"loss": -math.inf}], "steps": 3, "name": "a"}
    expected = {"auc": None, "each": [1.5, None, {"loss": None}], "steps": 3, "name": "a"}
    assert json.loads(strict_json(value)) == expected


def test_nothing_is_left_for_python_to_find() -> None:
    """Each rank writes such a text every few seconds, and Python looks for cycles of objects hardly ever.

    What other threads and other tests' objects leave meanwhile is found as well, so there are many texts.
    """
    texts = 1000
    gc.collect()
    gc.disable()
    try:
        for _ in range(texts):
            strict_json({"steps": [1, 2]})
        assert gc.collect() < texts
    finally:
        gc.enable()


@pytest.mark.parametrize(("samples", "told"), [(1, "1 test row"), (2, "2 test rows")])
def test_measures_are_those_of_so_many_rows(samples: int, told: str) -> None:
    assert quality({"auc": 0.5, "log_loss": 0.25, "samples": samples}) == f"AUC 0.50000, log loss 0.25000 on {told}"
