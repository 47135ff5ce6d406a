"""The tables of docs/exactness.md say for every feature, model and optimizer which test shows it, and nothing else.

That the files and tests that they name exist is seen by `test_docs_links.py`, as of all pages.
"""

import re
from pathlib import Path

import pytest

from bagpipe_hpc.config.doors import MODELS, ROW_OPTIMIZERS, Door
from tests.end_to_end.test_feature_equality import CASES

PAGE = Path(__file__).parents[2] / "docs" / "exactness.md"


def rows_of(first_heading: str) -> list[list[str]]:
    """The cells of the table whose first column has that heading."""
    table = re.search(rf"^\| {first_heading} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE)
    assert table, first_heading
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table[1].splitlines()]


def named(cells: list[str]) -> list[str]:
    """What stands in backticks."""
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize(("heading", "door"), [("model", MODELS), ("optimizer", ROW_OPTIMIZERS)])
def test_every_entry_has_a_test(heading: str, door: Door) -> None:
    assert sorted(named([row[0] for row in rows_of(heading)])) == sorted(door.entries)


def test_every_kind_of_feature_has_a_case() -> None:
    listed = {name for name in named([row[1] for row in rows_of("feature")]) if not name.startswith("tests/")}
    assert listed == set(CASES)


@pytest.mark.parametrize("heading", ["feature", "model", "optimizer", "schedule or guard"])
def test_bits_have_a_test_everywhere(heading: str) -> None:
    for what, bits, _ in rows_of(heading):
        assert named([bits]) or bits == "with each row optimizer", what
