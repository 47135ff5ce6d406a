"""The last stage of a preparation: from parsed rows, through vocabularies, to shards.

Ranks share the shards. Threads encode pieces of rows; another thread writes them. The next shard is encoded and written
while a finished one is checksummed and forced to the disk.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Event
from typing import NamedTuple, NoReturn, TypeVar

from bagpipe_hpc.errors import DataError, NoRowsError
from bagpipe_hpc.storage.shards.encoded import EncodedSamples, encode_samples, write_encoded_shard
from bagpipe_hpc.storage.shards.entries import FeatureInfo, ShardInfo, TableInfo, id_dtype, shard_name
from bagpipe_hpc.storage.shards.manifest import SCHEMA_VERSION, ShardManifest
from bagpipe_hpc.storage.shards.samples import CHUNK_ROWS, Samples
from bagpipe_hpc.storage.shards.writer import write_shard
from data_prep.formats.columns import Sparse, SparseList, table_of
from data_prep.formats.layout import RowLayout
from data_prep.ordered_map import ordered_map
from data_prep.parsed_rows import ParsedRows
from data_prep.preparation_state import shown_names
from data_prep.ranks.board import Stage, Tell
from data_prep.sample_encoder import SampleEncoder
from data_prep.stages.count import make_vocabularies, unseen_note
from data_prep.stages.stage_inputs import StageInputs

Block = TypeVar("Block", Samples, EncodedSamples)

ENCODE_ROWS = 4 * CHUNK_ROWS
"""Rows that are encoded and written together."""
ENCODE_VALUES = 1 << 22
"""With more ids of ragged features than this, on average, rows are encoded a chunk at a time: 48 MB with weights."""


class Piece(NamedTuple):
    """Rows `first` up to `last` of all rows, whose shard has `shard_rows`."""

    first: int
    last: int
    shard_rows: int


@dataclass(frozen=True)
class PlannedShard:
    """A shard of rows `first` up to `last`."""

    name: str
    first: int
    last: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.last - self.first

    def pieces(self, piece_rows: int) -> list[Piece]:
        """Its rows in pieces that begin at chunks."""
        return [
            Piece(at, min(at + piece_rows, self.last), self.rows) for at in range(self.first, self.last, piece_rows)
        ]


def write_shards(given: StageInputs, skipped_rows: Sequence[str]) -> ShardManifest:
    """Write the shards that are not yet written, and note each. Collective over: all ranks of the team.

    Args:
        given: the rows, and everything else that shards are made from.
        skipped_rows: malformed rows of the input, for the manifest.

    Returns:
        The manifest, which is not yet written.

    Raises:
        NoRowsError: there are no rows.
        DataError: there is no row to train on.
    """
    team, rows, work, layout, settings = given.team, given.rows, given.work, given.layout, given.settings
    split, train_rows, earlier = given.split, given.train_rows, given.earlier
    _require_rows(given)
    made = make_vocabularies(given)
    vocabularies = made.tables
    rules = [settings.id_rule(table) for table in layout.tables]
    id_maps = given.backend.id_maps(layout.tables, vocabularies, rules)
    table_rows = [
        rule.hashed_rows if vocabulary is None else vocabulary.rows
        for vocabulary, rule in zip(vocabularies, rules, strict=True)
    ]
    encoder = SampleEncoder(layout, id_maps, id_dtype(max(table_rows)))
    train = list(_plan_shards("train", 0, train_rows, settings.rows_per_shard))
    plan = train + list(_plan_shards("test", split.test_first, split.test_last, settings.rows_per_shard))
    left = [shard for shard in plan if shard.name not in work.shards]
    done = split.rows - sum(shard.rows for shard in left)

    def write_share() -> list[ShardInfo]:
        own = left[team.rank :: team.size]
        shards = []
        with work.naming_output():
            for shard in _write_planned(given, own, encoder):
                shards.append(shard)
                team.go_on(Tell(shard.rows, shard.rows, finished=True))
        return shards

    team.begin(Stage("wrote", split.rows, done, done))
    shares = team.together(write_share)
    shards = {**work.shards, **{shard.file: shard for share in shares for shard in share}}
    written = tuple(shards[planned.name] for planned in plan)
    if settings.like is not None:
        team.first_does(lambda: given.progress(unseen_note(given, vocabularies, id_maps)))
    if settings.labelled:
        for note in constant_labels(layout.labels, written[: len(train)]):
            given.progress(note)
    features = team.first_does(lambda: [_feature_info(column, rows) for column in layout.features])
    return ShardManifest(
        schema_version=SCHEMA_VERSION,
        source_format=settings.source_format,
        dense_features=len(layout.dense),
        tables=tuple(TableInfo(table.name, ids) for table, ids in zip(layout.tables, table_rows, strict=True)),
        train=written[: len(train)],
        test=written[len(train) :],
        inputs=work.state.inputs,
        settings=work.state.settings,
        skipped_rows=tuple(skipped_rows),
        vocabularies=made.info,
        waiting=made.waiting,
        grown_from=earlier.digest if earlier is not None and settings.grow is not None else None,
        hashed_tables=tuple(
            table.name for table, vocabulary in zip(layout.tables, vocabularies, strict=True) if vocabulary is None
        ),
        features=tuple(features),
        labels=layout.labels,
        weighted_samples=layout.weight is not None,
        others=layout.others,
    )


def _require_rows(given: StageInputs) -> None:
    """Check that there are rows to train on; note it if none are for tests. Collective over: all ranks of the team.

    Raises:
        NoRowsError: there are no rows.
        DataError: there is no row to train on.
    """
    rows, settings = given.rows.rows, given.settings
    named = shown_names(source.file for source in given.work.state.inputs)
    if rows == 0:
        problem: DataError = NoRowsError(f"{named}: 0 good rows; check the inputs")
        given.team.each_does(lambda: _refuse(problem))
    if given.train_rows == 0 and settings.like is None:
        problem = DataError(f"{named}: {rows} good rows leave none to train on; check the inputs and what is for tests")
        given.team.each_does(lambda: _refuse(problem))
    if given.train_rows == rows and settings.test_files is None and settings.test_share > 0:
        given.progress(f"note: no row is left for tests: {settings.test_share} of {rows} rows is less than one")
    if settings.test_files is not None and given.split.test_first == given.split.test_last:
        half = "" if settings.test_half is None else f", and the {settings.test_half} half of them is for tests"
        held = f"the last {settings.test_files} of {len(given.work.state.inputs)} files hold {rows - given.train_rows}"
        given.progress(f"note: no row is left for tests: {held} good rows{half}")


def constant_labels(labels: Sequence[str], train: Sequence[ShardInfo]) -> Iterator[str]:
    """A note for each label that has one value in all of several training rows, from which no model learns.

    Args:
        labels: names of the labels.
        train: the shards of the training rows.
    """
    rows = sum(shard.rows for shard in train)
    if rows < 2:
        return
    positives = zip(*((shard.positives, *shard.more_positives) for shard in train), strict=True)
    for label, ones in zip(labels, map(sum, positives), strict=True):
        if ones in (0, rows):
            yield f"note: label {label} is {int(ones > 0)} in all {rows} training rows; check the column and its rule"


def _refuse(problem: DataError) -> NoReturn:
    raise problem


def _feature_info(column: Sparse | SparseList, rows: ParsedRows) -> FeatureInfo:
    table = table_of(column)
    if isinstance(column, Sparse):
        return FeatureInfo(column.name, table)
    weighted = column.weights is not None
    return FeatureInfo(column.name, table, ragged=True, weighted=weighted, longest=rows.longest(column.name))


def _rows_of_piece(rows: ParsedRows, layout: RowLayout) -> int:
    """Rows of a piece: whole chunks, few enough that their ids do not fill memory."""
    values = sum(rows.list_values(column.name) for column in layout.lists)
    return ENCODE_ROWS if values * ENCODE_ROWS <= ENCODE_VALUES * rows.rows else CHUNK_ROWS


def _plan_shards(split: str, first: int, last: int, rows_per_shard: int) -> Iterator[PlannedShard]:
    for number, start in enumerate(range(first, last, rows_per_shard)):
        yield PlannedShard(shard_name(split, number), start, min(start + rows_per_shard, last))


def _write_planned(given: StageInputs, plan: Sequence[PlannedShard], encoder: SampleEncoder) -> Iterator[ShardInfo]:
    """Write shards one after the other, and note each; where threads cannot compress, HDF5 does it."""
    compression, checksums = given.settings.compression, given.settings.chunk_checksums
    piece_rows = _rows_of_piece(given.rows, given.layout)

    def read(piece: Piece) -> Samples:
        return encoder.encode(given.rows.read(piece.first, piece.last))

    if given.backend.encoders is None or checksums:  # HDF5 alone writes the checksums of chunks.
        write = partial(write_shard, compression=compression, chunk_checksums=checksums)
        yield from _encode_and_write(given, plan, piece_rows, read, write)
        return
    compress = given.backend.encoders[compression]

    def encode(piece: Piece) -> EncodedSamples:
        return encode_samples(read(piece), piece.shard_rows, compress)

    write_encoded = partial(write_encoded_shard, compression=compression, encode=compress)
    yield from _encode_and_write(given, plan, piece_rows, encode, write_encoded)


def _encode_and_write(
    given: StageInputs,
    plan: Sequence[PlannedShard],
    piece_rows: int,
    encode: Callable[[Piece], Block],
    write: Callable[[Path, int, Iterable[Block]], ShardInfo],
) -> Iterator[ShardInfo]:
    """Write shards one after the other: while one is checksummed and forced to the disk, the next is written."""
    pieces = (piece for shard in plan for piece in shard.pieces(piece_rows))
    blocks = ordered_map(given.pool, encode, pieces, ahead=2 * given.team.threads)

    has_failed = Event()

    def write_next(shard: PlannedShard, has_blocks: Event) -> ShardInfo:
        has_come_through = False
        try:
            own = islice(blocks, len(shard.pieces(piece_rows)))
            info = write(given.work.output / shard.name, shard.rows, _signalling(own, has_blocks))
            given.work.note_shard(info)
            has_come_through = True
            return info
        finally:
            if not has_come_through:
                has_failed.set()
            has_blocks.set()

    with ThreadPoolExecutor(2) as writers:
        before: Future[ShardInfo] | None = None
        for shard in plan:
            has_blocks = Event()
            writing = writers.submit(write_next, shard, has_blocks)
            has_blocks.wait()  # Two threads never take blocks at once.
            if before is not None:
                yield before.result()
            before = writing
            if has_failed.is_set():  # The blocks that are left belong to the failed shard.
                writing.result()
        if before is not None:
            yield before.result()


def _signalling(blocks: Iterable[Block], taken: Event) -> Iterator[Block]:
    """Pass blocks on; `taken` is set when the last one has been used."""
    yield from blocks
    taken.set()
