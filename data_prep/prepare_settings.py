"""The settings of `bagpipe prepare`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.storage.shards.writer import COMPRESSIONS
from data_prep.backend import BACKENDS
from data_prep.formats import buckets
from data_prep.formats.columns import TableLimits, Values
from data_prep.formats.layout import IdRule, RowLayout, Table

_GROWN = (
    "old ids stay; a value that the day uses, and all days min_count times, gets one that no value has, else a new "
    "one, by descending count, then value; one unused in the last evict_unused training rows of all days loses it and "
    "its count"
)


MOST_SKIPPED = 1_000_000
"""Most malformed rows that may be skipped: the manifest names each."""


@dataclass(frozen=True)
class PrepareSettings:
    """How clicks are prepared; most fields are options of `bagpipe prepare`."""

    source_format: str = "criteo"
    """Format of the input: a short name, or `package.module:Class`."""
    format_options: tuple[str, ...] = ()
    """The format's own settings that differ from their defaults, `key=value` each, the value as in TOML."""
    min_count: int = 2
    """Training rows in which a value must occur to get an id of its own; rarer values share id 0 with missing ones."""
    max_rows_per_table: int | None = None
    """Most rows of a table: hash the values of a column to this many ids if an id for each would take more."""
    rows_per_shard: int = 1 << 20
    """Rows of a shard; a multiple of 8192 lets the chunks of all shards line up with the blocks that training reads."""
    test_fraction: float | None = None
    """Share of the rows, the last ones, that become the test split; None is a tenth, or all with `like`."""
    compression: str = "lzf"
    """Compression of the shards: `lzf` (fast), `gzip` (a little smaller, any HDF5 reader) or `none`."""
    chunk_checksums: bool = False
    """Store a checksum with every HDF5 chunk, checked on each read."""
    skip_bad_rows: int = 0
    """Most malformed rows that are left out, counted and listed; one more stops the preparation."""
    backend: str = "auto"
    """Native code (`native`), its definition in Python (`reference`), or native code where it was built (`auto`)."""
    unseen_buckets: int = 0
    """Rows of each table among which a hash divides the values that have no id of their own; with 0 these get id 0."""
    like: Path | None = None
    """A shard directory of earlier rows, from which the meaning of rows and the ids of values are taken."""
    grow: Path | None = None
    """A shard directory of earlier rows, as for `like`, but values that it lacks may get ids of their own."""
    evict_unused: int | None = None
    """With `grow`: training rows after which a value that none of them uses loses its id; None keeps all ids."""
    labelled: bool = True
    """Whether rows have labels. If not, these are rows to score: columns that no prediction needs may be absent, and
    labels are 0."""
    schema: Mapping[str, Any] | None = None
    """The schema of the input as plain values, if `source_format` is `schema`; recorded whole with the shards."""

    test_files: int | None = None
    """How many input files, the last ones, become the test split, such as the last day; None: by `test_fraction`."""
    test_half: str | None = None
    """With `test_files`: only the `first` or the `second` half of their rows; the other half is in no split."""

    def __post_init__(self) -> None:
        _require(1 <= self.min_count < 1 << 32, "min-count", self.min_count, "use 1 or more, less than 2 ** 32")
        if self.max_rows_per_table is not None:
            hashable = 2 <= self.max_rows_per_table < 1 << 63
            _require(hashable, "max-rows-per-table", self.max_rows_per_table, "use 2 or more, less than 2 ** 63")
        _require(self.rows_per_shard >= 1, "rows-per-shard", self.rows_per_shard, "use 1 or more")
        fraction = self.test_fraction
        _require(fraction is None or 0 <= fraction < 1, "test-fraction", fraction, "use 0 or more, less than 1")
        _require(self.compression in COMPRESSIONS, "compression", self.compression, f"use {', '.join(COMPRESSIONS)}")
        cure = f"use 0 to {MOST_SKIPPED}: each is named in the manifest"
        _require(0 <= self.skip_bad_rows <= MOST_SKIPPED, "skip-bad-rows", self.skip_bad_rows, cure)
        _require(self.backend in BACKENDS, "backend", self.backend, f"use one of {', '.join(BACKENDS)}")
        _require(0 <= self.unseen_buckets < 1 << 31, "unseen-buckets", self.unseen_buckets, "use 0 to 2 ** 31 - 1")
        if self.test_files is not None:
            _require(self.test_files >= 1, "test-files", self.test_files, "use 1 or more")
            alone = self.test_fraction is None and self.like is None
            _require(alone, "test-files", self.test_files, "use it without --test-fraction and --like")
        if self.test_half is not None:
            _require(self.test_half in ("first", "second"), "test-half", self.test_half, "use first or second")
            _require(self.test_files is not None, "test-half", self.test_half, "use it with --test-files N")
        if self.evict_unused is not None:
            _require(1 <= self.evict_unused < 1 << 62, "evict-unused", self.evict_unused, "use 1 or more rows")
            _require(self.grow is not None, "evict-unused", self.evict_unused, "use it with --grow DIR")
        if self.grow is not None:
            _require(self.like is None, "grow", str(self.grow), "use it without --like: ids either stay or grow")
            _require(self.labelled, "grow", str(self.grow), "rows without labels are prepared with like")
        if self.max_rows_per_table is not None:
            most = self.max_rows_per_table - 1
            _require(self.unseen_buckets < most, "unseen-buckets", self.unseen_buckets, f"use less than {most}")

    def id_rule(self, table: Table) -> IdRule:
        """Which values of a table get an id each, and what the others get: by its own limits or by the settings."""
        own, limit = table.limits or TableLimits(), self.max_rows_per_table
        if own.hash_rows is not None:
            return IdRule(1, -1, own.hash_rows)
        if own.max_rows is not None or (own.min_count is None and limit is not None):
            rows = own.max_rows or limit or 2
            return IdRule(1, rows - 1 - self.unseen_buckets, rows)
        return IdRule(own.min_count or self.min_count, None, 2)

    @property
    def test_share(self) -> float:
        """Share of the rows, the last ones, that become the test split, 0 to 1."""
        if self.test_fraction is not None:
            return self.test_fraction
        return 1.0 if self.like is not None else 0.1

    def choices(self, layout: RowLayout, own: Mapping[str, Any], earlier: str | None = None) -> dict[str, Any]:
        """Everything that decides what the shards hold, in words where a number does not say enough.

        `skip_bad_rows` is not included: which rows are malformed does not depend on it, so a preparation that stopped
        at a malformed row may go on with a larger limit. Nor is `backend`.

        Args:
            layout: layout of the source format.
            own: all of the format's own settings.
            earlier: SHA-256 of the vocabularies of the earlier rows.
        """
        choices = asdict(self) | {"test_fraction": self.test_share}
        choices |= {name: earlier for name in ("like", "grow") if choices[name] is not None}
        del choices["skip_bad_rows"], choices["backend"], choices["format_options"]
        defaults = {"unseen_buckets": 0, "like": None, "grow": None, "labelled": True, "schema": None}
        defaults |= {"test_files": None, "test_half": None}
        if self.test_files is not None:
            choices["test_fraction"] = None
        for name, default in defaults.items():
            if choices[name] == default:  # absent from the manifests of versions without this setting
                del choices[name]
        if self.grow is None:
            del choices["evict_unused"]
        else:
            choices["grown"] = _GROWN
        if own:
            choices["format_options"] = dict(own)
        limited = self.max_rows_per_table is not None
        if limited:
            del choices["min_count"]
        counted = "training rows" if layout.is_plain else "places of the training rows, over all columns of the table"
        bucket = "0 missing; 1 + MurmurHash3 fmix64(value) mod unseen_buckets"
        missing = bucket if self.unseen_buckets else "0 missing or"
        vocabulary = f"{counted}; else from {1 + self.unseen_buckets} by descending count, then value"
        has_text = any(column.values is Values.TEXT for column in layout.features)
        of_text = ", the value of a text being its BLAKE2b of 64 bits" if has_text else ""
        if any(column.values is Values.BUCKET for column in layout.features):
            choices["buckets"] = buckets.RULE
        return choices | {
            "ids": f"{missing} not in the {vocabulary}. Tables that would have more than max_rows_per_table rows: "
            f"0 missing; else 1 + MurmurHash3 fmix64(value) mod (max_rows_per_table - 1){of_text}"
            if limited
            else f"{missing} in fewer than min_count {vocabulary}",
            "dense": layout.dense_rule if self.schema is None else "as schema says, by the numbers in fitted",
            "split": f"time order: {_split_rule(self)}",
        }


def _split_rule(settings: PrepareSettings) -> str:
    if settings.test_files is None:
        return "the last round(test_fraction * rows) rows are the test split"
    half = f", of which the {settings.test_half} half alone is used" if settings.test_half else ""
    return f"the rows of the last test_files files are the test split{half}"


def _require(holds: bool, flag: str, value: object, cure: str) -> None:
    if not holds:
        raise ConfigError(f"prepare: {flag} = {value!r}: {cure}")
