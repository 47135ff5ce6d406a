"""The source format of a schema: any CSV, TSV or Parquet file."""

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bagpipe_hpc.errors import ConfigError, DataError
from data_prep.formats.columns import Column, Unused
from data_prep.formats.delimited import DelimitedParser
from data_prep.formats.layout import RowLayout, TextFields
from data_prep.formats.source_format import ColumnInput, Parts, Refine, SourceFormat, TextInput, row_schema
from data_prep.formats.unlabelled import UNNEEDED, absent_by_count
from data_prep.inputs.files import first_line, first_row
from data_prep.inputs.parquet_blocks import column_types, is_parquet
from data_prep.schema.document import Schema
from data_prep.schema.fitting import Refinement, check_fitted, fit, is_fitted
from data_prep.schema.parquet_fields import ParquetFields, unreadable
from data_prep.schema.rows import SchemaRows, field_of, layout_of, parsed_schema

_SHOWN_COLUMNS = 12


class SchemaFormat(SourceFormat):
    """Rows of files that a schema describes.

    Args:
        settings: the schema.
    """

    def __init__(self, settings: Schema) -> None:
        self._schema = settings
        super().__init__(settings)
        self.schema = parsed_schema(settings, self.schema)
        self._fields = tuple(field_of(column) for column in settings.columns)
        self._rows = SchemaRows(settings, self.layout, self.schema)
        self._unlabelled_rows = SchemaRows(settings, self.layout, self.schema, labelled=False)

    def describe(self, settings: Any) -> RowLayout:
        """What the rows of the schema hold."""
        return layout_of(settings)

    def fit(self, parts: Parts) -> dict[str, Any] | None:
        """Means, deviations and quantiles of the training rows, where the schema wants any."""
        return fit(self._schema, parts) if is_fitted(self._schema) else None

    def refinement(self, fitted: Mapping[str, Any]) -> Refine:
        """The function that scales numbers and puts them into intervals."""
        if problem := check_fitted(self._schema, fitted):
            raise ConfigError(f"what was taken from the training rows {problem}")
        return Refinement(self._schema, fitted, row_schema(self.layout))

    def open_input(self, source: Path, native: bool) -> TextInput | ColumnInput:
        """Find the columns of the schema in a file, which may have others, too, and in any order.

        Raises:
            DataError: a column is missing, or its type cannot hold what the schema says.
        """
        return self._open(source, self._fields, self._rows, native)

    def open_unlabelled(self, source: Path, native: bool) -> TextInput | ColumnInput:
        """As `open_input`, for rows to score: columns that no prediction needs may be absent, and are ignored.

        A time is needed if a feature is made of it.
        """
        sources = {column.source for column in self._schema.derived}
        unneeded = [f.name for f in self._fields if isinstance(f, UNNEEDED) and f.name not in sources]
        fields = [Unused(field.name) if field.name in unneeded else field for field in self._fields]
        if not self._schema.file.header and not is_parquet(source):
            absent = absent_by_count(source, self._fields, unneeded, self._split(first_row(source)))
            fields = [field for field in fields if field.name not in absent]
        return self._open(source, fields, self._unlabelled_rows, native)

    def _open(self, source: Path, fields: Sequence[Column], rows: SchemaRows, native: bool) -> TextInput | ColumnInput:
        used = [field for field in fields if not isinstance(field, Unused)]
        rules = self._schema.file
        if is_parquet(source):
            types = column_types(source)
            self._require_columns(str(source), list(types), used)
            for field in used:
                if problem := unreadable(field, types[field.name]):
                    raise DataError(
                        f"{source}: column {field.name} {problem}; correct columns.{field.name} of the schema, or the "
                        "file"
                    )
            return ColumnInput(
                tuple(field.name for field in used), ParquetFields(used, rules.missing, rows.rows_of).parse
            )
        if rules.header:
            header = self._split(first_line(source))
            self._require_columns(f"{source}:1", header, used)
            named = {field.name: field for field in used}
            # Further columns may have any name, even the same one twice. pyarrow needs a name for each, so they get
            # unprintable ones, which no column of a schema has.
            fields = [named.get(name, Unused(f"\x1f{number}")) for number, name in enumerate(header)]
        layout = TextFields(tuple(fields), rules.character, rules.header, rules.quoted, rules.missing)
        return TextInput(rules.header, DelimitedParser(layout, self.schema, rows.rows_of, native=native).parse_block)

    def _split(self, line: str) -> list[str]:
        rules = self._schema.file
        return TextFields((), rules.character, quoted=rules.quoted).split(line)

    def _require_columns(self, place: str, found: Sequence[str], used: Sequence[Column]) -> None:
        counts = Counter(found)
        for field in used:
            if counts[field.name] == 1:
                continue
            told = ", ".join(found[:_SHOWN_COLUMNS]) + (", ..." if len(found) > _SHOWN_COLUMNS else "")
            what = "two columns" if field.name in found else "no column"
            near = difflib.get_close_matches(field.name, found, n=1)
            cure = f"did you mean {near[0]!r}? " if near and field.name not in found else ""
            raise DataError(
                f"{place}: {what} named {field.name!r}, but {told!r:.400}; {cure}correct columns.{field.name} of the "
                "schema, its separator, or the file"
            )
