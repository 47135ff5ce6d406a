"""A format with lists, weights and two labels: what users looked at before, and what they did with one more item.

A CSV with a header. `bagpipe generate --kind sequences` writes it; a user's own files may have it, too.
"""

from typing import Any

from data_prep.formats.columns import Dense, Label, Sparse, SparseList, Values, Weight
from data_prep.formats.layout import TextLayout
from data_prep.formats.source_format import SourceFormat

LAYOUT = TextLayout(
    columns=(
        Label("click"),
        Label("buy"),
        Weight("weight"),
        Dense("price"),
        Dense("visits", log=True),
        Sparse("user", Values.INTEGER),
        Sparse("item", Values.INTEGER),
        SparseList("history", Values.INTEGER, table="item"),
        SparseList("genres", Values.TEXT, table="genre", weights=":"),
    ),
    separator=",",
    header=True,
)


class Sequences(SourceFormat):
    """A user, an item, the items before it, and the item's genres with their shares."""

    def describe(self, settings: Any) -> TextLayout:  # noqa: ARG002  # it has none
        """The layout of all such files."""
        return LAYOUT
