"""The settings of `bagpipe prepare`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.storage.shards.writer import COMPRESSIONS
from data_prep.backend import BACKENDS
from data_prep.formats import buckets
from data_prep.formats.layout import RowLayout, Values


@dataclass(frozen=True)
class PrepareSettings:
    """How clicks are prepared; a flag of `bagpipe prepare` each."""

    source_format: str = "criteo"
    """Format of the input: a short name, or `package.module:Class`."""
    format_options: tuple[str, ...] = ()
    """The format's own settings that differ from their defaults, `key=value` each, the value as in TOML."""
    min_count: int = 2
    """Training rows in which a value must occur to get an id of its own; rarer ones share id 0 with missing ones."""
    max_rows_per_table: int | None = None
    """Most rows of a table: hash the values of a column to this many ids if more would be needed for an id each."""
    rows_per_shard: int = 1 << 20
    """Rows of a shard; a multiple of 8192 lets the chunks of all shards line up with the blocks that training reads."""
    test_fraction: float = 0.1
    """Share of the rows, the last ones, that become the test split."""
    compression: str = "lzf"
    """Compression of the shards: `lzf` (fast), `gzip` (a little smaller, any HDF5 reader) or `none`."""
    chunk_checksums: bool = False
    """Store a checksum with every HDF5 chunk, checked on each read."""
    skip_bad_rows: int = 0
    """Most malformed rows that are left out, counted and listed; one more stops the preparation."""
    backend: str = "auto"
    """Native code (`native`), its definition in Python (`reference`), or native code where it was built (`auto`)."""

    def __post_init__(self) -> None:
        _require(1 <= self.min_count < 1 << 32, "min-count", self.min_count, "use 1 or more, less than 2 ** 32")
        if self.max_rows_per_table is not None:
            hashable = 2 <= self.max_rows_per_table < 1 << 63
            _require(hashable, "max-rows-per-table", self.max_rows_per_table, "use 2 or more, less than 2 ** 63")
        _require(self.rows_per_shard >= 1, "rows-per-shard", self.rows_per_shard, "use 1 or more")
        _require(0 <= self.test_fraction < 1, "test-fraction", self.test_fraction, "use 0 or more, less than 1")
        _require(self.compression in COMPRESSIONS, "compression", self.compression, f"use {', '.join(COMPRESSIONS)}")
        _require(self.skip_bad_rows >= 0, "skip-bad-rows", self.skip_bad_rows, "use 0 or more")
        _require(self.backend in BACKENDS, "backend", self.backend, f"use one of {', '.join(BACKENDS)}")

    def choices(self, layout: RowLayout, own: Mapping[str, Any]) -> dict[str, Any]:
        """Everything that decides what the shards hold, in words where a number does not say it.

        `skip_bad_rows` is not among them: which rows are malformed does not depend on it, so a preparation that stopped
        at one may go on with a larger limit. Nor is `backend`.

        Args:
            layout: of the source format.
            own: all of the format's own settings.
        """
        choices = asdict(self)
        del choices["skip_bad_rows"], choices["backend"], choices["format_options"]
        if own:
            choices["format_options"] = dict(own)
        limited = self.max_rows_per_table is not None
        if limited:
            del choices["min_count"]
        counted = "training rows" if layout.is_plain else "places of the training rows, over all columns of the table"
        vocabulary = f"{counted}; else from 1 by descending count, then value"
        has_text = any(column.values is Values.TEXT for column in layout.features)
        of_text = ", the value of a text being its BLAKE2b of 64 bits" if has_text else ""
        if any(column.values is Values.BUCKET for column in layout.features):
            choices["buckets"] = buckets.RULE
        return choices | {
            "ids": f"0 missing or not in the {vocabulary}. Tables that would have more than max_rows_per_table rows: "
            f"0 missing; else 1 + MurmurHash3 fmix64(value) mod (max_rows_per_table - 1){of_text}"
            if limited
            else f"0 missing or in fewer than min_count {vocabulary}",
            "dense": layout.dense_rule,
            "split": "time order: the last round(test_fraction * rows) rows are the test split",
        }


def _require(holds: bool, flag: str, value: object, cure: str) -> None:
    if not holds:
        raise ConfigError(f"prepare: {flag} = {value!r}: {cure}")
