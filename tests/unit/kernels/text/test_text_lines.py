"""Native code counts the ends of lines as the definition does."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bagpipe_hpc.kernels.shared_library import is_built
from bagpipe_hpc.kernels.text import text_lines
from data_prep.inputs.text_blocks import count_line_ends

pytestmark = pytest.mark.skipif(not is_built("text_lines"), reason="native code was not built")

PIECES = st.one_of(
    st.sampled_from([b"a", b"\n", b"\r\n", b"\r"]),
    st.builds(bytes.__mul__, st.sampled_from([b"\n", b"\r\n", b"\r", b"ab\n", b"abc"]), st.integers(1, 9000)),
)


@given(st.lists(PIECES, max_size=12).map(b"".join))
@example(b"\n" * (1 + 64 * 255 * 2 + 63))
@example(b"a" + b"\r\n" * 64)
@example(b"\n\r" * 64)
def test_ends_of_lines_are_those_of_the_definition(text: bytes) -> None:
    assert text_lines.count_line_ends(text) == count_line_ends(text)
