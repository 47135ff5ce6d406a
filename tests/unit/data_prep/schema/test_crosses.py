"""A cross has a value for each pair of values, whatever characters these hold."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.schema.rows import crossed

TEXTS = st.none() | st.text("\x1fa1ä", max_size=4)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), max_size=20)


def crosses(pairs: list[tuple[str | None, str | None]]) -> list[str | None]:
    first, second = (pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1))
    found: list[str | None] = crossed(first, second).to_pylist()
    return found


def test_pairs_that_differ_have_values_that_differ() -> None:
    assert crosses([("a\x1fb", "c"), ("a", "b\x1fc")]) == ["a\x1fb\x1fc\x1f3", "a\x1fb\x1fc\x1f1"]


@given(PAIRS)
def test_values_are_one_to_one_and_do_not_depend_on_other_rows(pairs: list[tuple[str | None, str | None]]) -> None:
    found = crosses(pairs)
    whole = {pair: value for pair, value in zip(pairs, found, strict=True) if None not in pair}
    assert len(set(whole.values())) == len(whole)
    assert found == [crosses([pair])[0] for pair in pairs]
    assert [value is None for value in found] == [None in pair for pair in pairs]


@pytest.mark.parametrize("first", [7, "ä"])
def test_texts_without_the_separator_stay_as_they_are(first: int | str) -> None:
    kind = pa.int64() if isinstance(first, int) else pa.string()
    assert crossed(pa.array([first], kind), pa.array(["b"])).to_pylist() == [f"{first}\x1fb"]
