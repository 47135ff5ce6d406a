"""The Criteo click format: a label, 13 integers and 26 categorical values, tab-separated, no header."""

from dataclasses import dataclass
from typing import Any

from data_prep.formats import native_criteo
from data_prep.formats.layout import Dense, Label, Sparse, TextLayout, Values
from data_prep.formats.source_format import BlockParser, SourceFormat

INTEGER_NAMES = tuple(f"I{number}" for number in range(1, 14))
TABLE_NAMES = tuple(f"C{number}" for number in range(1, 27))
NAMES = ("label", *INTEGER_NAMES, *TABLE_NAMES)

LAYOUT = TextLayout(
    columns=(
        Label("label"),
        *(Dense(name, log=True) for name in INTEGER_NAMES),
        *(Sparse(name, Values.HEX) for name in TABLE_NAMES),
    ),
    separator="\t",
)


class Criteo(SourceFormat):
    """Clicks as in the Kaggle and the Terabyte data."""

    native_libraries = ("click_text",)

    def describe(self, settings: Any) -> TextLayout:  # noqa: ARG002  # it has none
        """The layout of all of Criteo's files."""
        return LAYOUT

    def native_parser(self) -> BlockParser:
        """Native code for plain rows; a block with anything unusual is left to `parse_block`."""
        return native_criteo.NativeCriteo(self.schema, self.parse_block).parse_block


class CriteoBuckets(SourceFormat):
    """The same text, of whose integers the buckets are categories: 13 tables more, in front of the others."""

    @dataclass(frozen=True)
    class Settings:
        """Its own settings."""

        dense: bool = True
        """Integers are dense features as well; false leaves no dense features."""

    def describe(self, settings: Settings) -> TextLayout:
        """The layout of Criteo's files, with another use of the integers."""
        integers = [
            Dense(name, log=True, bucketed=True) if settings.dense else Sparse(name, Values.BUCKET)
            for name in INTEGER_NAMES
        ]
        return TextLayout((LAYOUT.columns[0], *integers, *LAYOUT.sparse), LAYOUT.separator)
