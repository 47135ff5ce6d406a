"""The Criteo click format: a label, 13 integers and 26 categorical values, tab-separated, no header."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from bagpipe_hpc.config.doors import SettingError
from data_prep.formats import native_criteo
from data_prep.formats.columns import Dense, Label, Sparse, Values
from data_prep.formats.delimited import BadLine
from data_prep.formats.layout import TextLayout
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


class CriteoTerabyte(SourceFormat):
    """The same text, with the values of Criteo's Terabyte data as in MLPerf's DLRM.

    A value is the remainder of its 32-bit integer, a missing one is 0 (facebookresearch/dlrm, data_utils.py).
    """

    native_libraries = Criteo.native_libraries

    @dataclass(frozen=True)
    class Settings:
        """Its own settings."""

        max_ind_range: int = 40_000_000
        """Values are taken modulo this number: 40,000,000 in MLPerf, 10,000,000 in smaller trials."""

        def __post_init__(self) -> None:
            if not 1 <= self.max_ind_range < 1 << 32:
                raise SettingError("max_ind_range", self.max_ind_range, "use 1 or more, less than 2 ** 32")

    def describe(self, settings: Settings) -> TextLayout:
        """The layout of all of Criteo's files."""
        self._range = np.uint32(settings.max_ind_range)
        return LAYOUT

    def parse_block(self, text: bytes) -> tuple[pa.RecordBatch, list[BadLine]]:
        """Read rows by the layout; then take the remainders of their values."""
        return self._remainders(*super().parse_block(text))

    def native_parser(self) -> BlockParser:
        """The same with native code."""
        parse_block = native_criteo.NativeCriteo(self.schema, super().parse_block).parse_block
        return lambda text: self._remainders(*parse_block(text))

    def _remainders(self, rows: pa.RecordBatch, bad: list[BadLine]) -> tuple[pa.RecordBatch, list[BadLine]]:
        columns = [
            pa.array(column.fill_null(0).to_numpy() % self._range) if pa.types.is_uint32(column.type) else column
            for column in rows.columns
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), bad


class CriteoBuckets(SourceFormat):
    """The same text, but the buckets of its integers are categories: 13 further tables, before the others."""

    @dataclass(frozen=True)
    class Settings:
        """Its own settings."""

        dense: bool = True
        """Integers are dense features as well; false leaves no dense features."""

    def describe(self, settings: Settings) -> TextLayout:
        """The layout of Criteo's files, with bucketed integers."""
        integers = [
            Dense(name, log=True, bucketed=True) if settings.dense else Sparse(name, Values.BUCKET)
            for name in INTEGER_NAMES
        ]
        return TextLayout((LAYOUT.columns[0], *integers, *LAYOUT.sparse), LAYOUT.separator)
