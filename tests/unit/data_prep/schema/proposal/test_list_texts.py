"""Lists are told from names with blanks by their pieces, whatever the separator; weights are seen."""

import random
from collections.abc import Callable

import pytest

from data_prep.schema.proposal.list_texts import find_list

CITIES = ["New York", "New Orleans", "Los Angeles", "San Diego", "San Francisco", "Chicago", "El Paso", "Fort Worth",
          "Salt Lake City", "Boston", "Kansas City", "Mexico City", "Las Vegas", "St Louis"]  # fmt: skip
COLOURS = ["red", "blue", "green", "black", "white", "brown", "grey"]
THINGS = ["shoe", "hat", "coat", "shirt", "sock", "belt"]
Draw = Callable[[random.Random], str]


def bag(values: list[str], separator: str, most: int) -> Draw:
    return lambda draw: separator.join(draw.sample(values, draw.randint(1, most)))


def weighted(mark: str, separator: str) -> Draw:
    return lambda draw: separator.join(
        f"{colour}{mark}{draw.randint(0, 9) / 2:g}" for colour in draw.sample(COLOURS, draw.randint(1, 3))
    )


NUMBERS = [str(number) for number in range(1, 900)]
SHAPES: dict[str, tuple[Draw, tuple[str, str | None] | None]] = {
    "one word": (lambda draw: draw.choice(COLOURS), None),
    "names of cities": (lambda draw: draw.choice(CITIES), None),
    "first and last names": (lambda draw: f"{draw.choice(COLOURS)} {draw.choice(THINGS)}", None),
    "a city and its country": (lambda draw: f"{draw.choice(CITIES)}, {draw.choice(['US', 'DE'])}", None),
    "few texts of words": (lambda draw: draw.choice(["a b", "b a", "a", "b c"]), None),
    "tags with bars": (bag(COLOURS, "|", 3), ("|", None)),
    "tags with semicolons": (bag(CITIES, ";", 3), (";", None)),
    "few tags with bars": (lambda draw: draw.choice(["a|b", "a", "b"]), ("|", None)),
    "seldom two tags": (lambda draw: "red|blue" if draw.random() < 0.1 else draw.choice(COLOURS), ("|", None)),
    "tags in order": (lambda draw: ",".join(sorted(draw.sample(COLOURS, draw.randint(1, 4)))), (",", None)),
    "tags with blanks": (bag(COLOURS, " ", 3), (" ", None)),
    "as many tags in each": (lambda draw: " ".join(draw.sample(COLOURS, 3)), (" ", None)),
    "numbers with blanks": (bag(NUMBERS, " ", 6), (" ", None)),
    "numbers with commas": (bag(NUMBERS, ",", 6), (",", None)),
    "numbers of 1,000 and more": (lambda draw: f"{draw.randint(1, 10**8):,}", None),
    "decimal commas": (lambda draw: f"{draw.randint(0, 99)},{draw.randint(100, 999)}", None),
    "telephone numbers": (lambda draw: f"0{draw.randint(100, 999)} {draw.randint(1000, 99999)}", None),
    "a country and its state": (lambda draw: draw.choice([f"C{n % 4}|S{n}" for n in range(40)]), None),
    "ten countries and their states": (lambda draw: draw.choice([f"C{n}|S{n}" for n in range(10)]), None),
    "nine countries and their states": (lambda draw: draw.choice([f"C{n}|S{n}" for n in range(9)]), ("|", None)),
    "a path": (lambda draw: draw.choice(["a|b|c", "a|b", "a|d", *(f"a|{n}|{n}{n}" for n in range(9))]), ("|", None)),
    "weights": (weighted(":", "|"), ("|", ":")),
    "weights behind a sign of equality": (weighted("=", ";"), (";", "=")),
    "weights between blanks": (weighted(":", " "), (" ", ":")),
    "times of day": (lambda draw: f"{draw.randint(9, 23)}:30|{draw.randint(9, 23)}:30", ("|", None)),
    "empty pieces": (lambda draw: f"{draw.choice(COLOURS)}||{draw.choice(COLOURS)}", None),
    "weights here and there": (lambda draw: draw.choice(["red:1|blue", "blue:2|red:3", "red|blue"]), ("|", None)),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", [150, 3000])
def test_lists_are_told_by_their_pieces(shape: str, rows: int) -> None:
    draw, expected = SHAPES[shape]
    random_ = random.Random(rows)
    fields = [draw(random_) for _ in range(rows)]
    found = find_list(fields)
    assert (found and (found.separator, found.weights)) == expected
    if found and found.weights:
        assert set(found.values) == set(COLOURS)


def test_a_character_that_separates_fields_separates_no_pieces() -> None:
    fields = ["red|blue", "blue|red", "red"] * 20
    assert find_list(fields, {"|"}) is None
    assert find_list(fields) is not None
    assert find_list([]) is None
