"""Rows of Criteo's format for tests."""

import random


def random_rows(rows: int, seed: int) -> list[str]:
    """Rows with few distinct values, so that counts matter, and with missing and negative ones."""
    rng = random.Random(seed)
    integers = ["", "-2", "0", "1", "17", "123456"]
    values = [
        "",
        "00000000",
        "68fd1e64",
        "80e26c9b",
        "FB936136",
        "7",
        "1f",
        *(f"{rng.getrandbits(32):08x}" for _ in range(9)),
    ]
    return [
        "\t".join([rng.choice("01"), *rng.choices(integers, k=13), *rng.choices(values, k=26)]) for _ in range(rows)
    ]
