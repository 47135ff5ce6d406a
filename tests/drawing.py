"""How many examples hypothesis draws for a property: all that its test names, or a part of them.

`make test` and the sanitizers draw a third (`EXAMPLES_DIVIDED_BY=3`); `make test-slow` repeats the same tests with all.
"""

import os

DIVIDED_BY = int(os.environ.get("EXAMPLES_DIVIDED_BY", "1"))
if DIVIDED_BY < 1:
    raise ValueError(f"EXAMPLES_DIVIDED_BY={DIVIDED_BY}: use 1 for all examples, or more for a part of them")


def share_of(most: int) -> int:
    """The examples to draw of `most`: one at least."""
    return -(-most // DIVIDED_BY)
