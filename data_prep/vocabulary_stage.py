"""The middle stage of a preparation: the values of training rows are counted, and get their ids.

Ranks share the tables; threads count columns.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.shards.id_uses import read_train_rows
from bagpipe_hpc.storage.shards.vocabulary import TableUse, TableVocabulary, load_vocabularies, write_vocabularies
from bagpipe_hpc.storage.shards.waiting_values import WaitingValues, waiting_info, write_waiting
from data_prep.backend import Backend, IdMaps
from data_prep.counted_tables import count_tables, counted_tables
from data_prep.formats.layout import IdRule, RowLayout, Table
from data_prep.growth import GrowthRules, TableGrowth, growth_text
from data_prep.last_uses import known_tables, last_uses_of_rows
from data_prep.ordered_map import ordered_map, worker_threads
from data_prep.parsed_rows import ParsedRows, values_of
from data_prep.preparation_state import WorkFolder, naming_output
from data_prep.prepare_settings import PrepareSettings
from data_prep.ranks.board import Tell
from data_prep.ranks.team import Team
from data_prep.recorded import RecordedPreparation
from data_prep.vocabulary import counts_of_ids
from data_prep.wide_values import CountedValues

_NAMED = 3
"""Tables that are named where only the first ones matter."""


class MadeVocabularies(NamedTuple):
    """The vocabularies of a preparation.

    Attributes:
        info: the file that holds them.
        waiting: the file of values that are too rare for an id; None where it is not kept.
        tables: of each table, in the order of the layout; None where its values are hashed.
    """

    info: FileInfo
    waiting: FileInfo | None
    tables: tuple[TableVocabulary | None, ...]


def make_vocabularies(
    team: Team,
    pool: ThreadPoolExecutor,
    rows: ParsedRows,
    train_rows: int,
    work: WorkFolder,
    layout: RowLayout,
    settings: PrepareSettings,
    backend: Backend,
    progress: Callable[[str], None],
    earlier: RecordedPreparation | None = None,
) -> MadeVocabularies:
    """The vocabulary of each table: that which is saved, of earlier rows, or of the training rows.

    Collective over: all ranks of `team`.
    """
    names = [table.name for table in layout.tables]
    takes_over = earlier is not None and settings.grow is None
    waiting = team.first_does(lambda: waiting_info(work.output)) if work.vocabularies is not None else None
    if work.vocabularies is not None and (takes_over or waiting is not None):
        info = work.vocabularies
    elif earlier is None:
        info, waiting = _count(team, pool, rows, train_rows, work, layout, settings, backend, progress)
    elif settings.grow is not None:
        info, waiting = _grow(team, pool, rows, train_rows, work, layout, settings, backend, progress, earlier)
    else:
        info, waiting = team.first_does(lambda: _take_over(earlier, work, progress)), None
    if earlier is not None and settings.grow is None:
        return MadeVocabularies(info, waiting, earlier.vocabularies)
    saved = team.each_does(lambda: load_vocabularies(work.output / info.file, names))
    return MadeVocabularies(info, waiting, tuple(saved.get(name) for name in names))


def _take_over(earlier: RecordedPreparation, work: WorkFolder, progress: Callable[[str], None]) -> FileInfo:
    """Copy the vocabularies of earlier rows."""
    with naming_output(work.output):
        copied = earlier.copy_vocabularies(work.output)
        work.note_vocabularies(copied)
    progress(f"took the vocabularies of {earlier.directory}")
    return copied


def _count(
    team: Team,
    pool: ThreadPoolExecutor,
    rows: ParsedRows,
    train_rows: int,
    work: WorkFolder,
    layout: RowLayout,
    settings: PrepareSettings,
    backend: Backend,
    progress: Callable[[str], None],
) -> tuple[FileInfo, FileInfo]:
    """Count the values of training rows, each rank those of tables of its own, and write the vocabularies.

    Returns:
        The file of vocabularies, and that of values that are too rare for an id.
    """
    buckets = settings.unseen_buckets
    rules = {table.name: settings.id_rule(table) for table in layout.tables}

    def write() -> tuple[FileInfo, FileInfo]:
        vocabularies: dict[str, TableVocabulary] = {}
        uses: dict[str, TableUse] = {}

        def waiting_values() -> Iterator[tuple[str, WaitingValues]]:
            for table, values in zip(layout.tables, counted_tables(work, layout.tables), strict=True):
                if values is not None:
                    vocabularies[table.name] = TableVocabulary(values.values, buckets)
                    uses[table.name] = TableUse(counts_of_ids(values, buckets))
                    yield table.name, values.rare

        with naming_output(work.output):
            waiting = write_waiting(work.output, waiting_values())  # the rare values of a table at a time
            info = write_vocabularies(work.output, vocabularies, buckets, uses, train_rows)
            work.note_vocabularies(info)
        ids = sum(vocabulary.rows for vocabulary in vocabularies.values())
        hashed = [table.name for table in layout.tables if table.name not in vocabularies]
        others = "".join(
            f"; {', '.join(name for name in hashed if rules[name].hashed_rows == rows)} hashed to {rows} ids each"
            for rows in sorted({rules[name].hashed_rows for name in hashed})
        )
        progress(f"built vocabularies of {ids:,} ids from {train_rows:,} rows{others}")
        return info, waiting

    _count_tables(team, pool, rows, train_rows, work, layout.tables, backend, rules)
    return team.first_does(write)


def _count_tables(
    team: Team,
    pool: ThreadPoolExecutor,
    rows: ParsedRows,
    train_rows: int,
    work: WorkFolder,
    tables: Sequence[Table],
    backend: Backend,
    rules: Mapping[str, IdRule],
) -> None:
    """Count the values of training rows, each rank those of tables of its own."""

    def count(tables: Sequence[Table]) -> Sequence[CountedValues | None]:
        def told(fields: int) -> None:
            team.go_on(Tell(fields, fields, finished=True))

        return backend.build_vocabularies(pool, rows, tables, train_rows, [rules[table.name] for table in tables], told)

    count_tables(team, rows, train_rows, work, tables, count)


def _grow(
    team: Team,
    pool: ThreadPoolExecutor,
    rows: ParsedRows,
    train_rows: int,
    work: WorkFolder,
    layout: RowLayout,
    settings: PrepareSettings,
    backend: Backend,
    progress: Callable[[str], None],
    earlier: RecordedPreparation,
) -> tuple[FileInfo, FileInfo]:
    """Let the vocabularies of earlier rows grow by the training rows, and write them; files as of `_count`."""
    of_tables = zip(layout.tables, earlier.vocabularies, strict=True)
    tables = [table for table, vocabulary in of_tables if vocabulary is not None]

    def write() -> tuple[FileInfo, FileInfo]:
        known = known_tables(earlier)
        first = read_train_rows(earlier.directory, earlier.manifest)
        all_rows = first + train_rows

        def growth_rules(rule: IdRule) -> GrowthRules:
            limit = None if rule.most_values is None else rule.hashed_rows
            return GrowthRules(rule.min_count, limit, settings.evict_unused, all_rows)

        growths = [
            TableGrowth(table.values, known[table.name], day, growth_rules(settings.id_rule(table)))
            for table, day in zip(tables, counted_tables(work, tables), strict=True)
            if day is not None
        ]
        watched = [growth.watched for growth in growths]
        last_uses = last_uses_of_rows(pool, rows, train_rows, first, tables, watched, backend)
        grown = {table.name: growth.grown(last) for table, growth, last in zip(tables, growths, last_uses, strict=True)}
        vocabularies = {name: table.vocabulary for name, table in grown.items()}
        uses = {name: table.use for name, table in grown.items()}
        with naming_output(work.output):
            waiting = write_waiting(work.output, ((name, table.waiting) for name, table in grown.items()))
            info = write_vocabularies(work.output, vocabularies, settings.unseen_buckets, uses, all_rows)
            work.note_vocabularies(info)
        text = growth_text(list(known.values()), list(grown.values()))
        progress(f"grew the vocabularies of {earlier.directory} by {train_rows:,} rows: {text}")
        return info, waiting

    all_values = {table.name: IdRule(1, None, 2) for table in tables}
    _count_tables(team, pool, rows, train_rows, work, tables, backend, all_values)
    return team.first_does(write)


def unseen_note(
    pool: ThreadPoolExecutor,
    rows: ParsedRows,
    layout: RowLayout,
    vocabularies: Sequence[TableVocabulary | None],
    id_maps: IdMaps,
) -> str:
    """How many look-ups of later rows are of values without an id of their own, in words: the largest shares.

    Args:
        pool: threads to use.
        rows: all parsed rows.
        layout: of the source format.
        vocabularies: of its tables; None where values are hashed, none of which is unseen.
        id_maps: gives values their ids.
    """
    known = [number for number, vocabulary in enumerate(vocabularies) if vocabulary is not None]

    def count(batch_and_table: tuple[object, int]) -> tuple[int, int, int]:
        batch, table = batch_and_table
        unseen = look_ups = 0
        vocabulary = vocabularies[table]
        last = 0 if vocabulary is None else vocabulary.unseen_buckets
        for values in values_of(batch, layout.tables[table].columns):
            ids = np.empty((len(values), 1), dtype=np.int64)
            id_maps.write_ids([values], [table], ids)
            unseen += int(np.count_nonzero(ids <= last)) - values.null_count
            look_ups += len(values)
        return table, unseen, look_ups

    unseen, look_ups = np.zeros(len(layout.tables), np.int64), np.zeros(len(layout.tables), np.int64)
    pieces = ((part, table) for part in rows.parts(rows.rows) for table in known)
    for table, found, all_of_it in ordered_map(pool, count, pieces, ahead=2 * worker_threads()):
        unseen[table] += found
        look_ups[table] += all_of_it
    shares = unseen / np.maximum(1, look_ups)
    largest = [table for table in np.argsort(-shares, kind="stable").tolist() if unseen[table]][:_NAMED]
    named = ", ".join(f"{layout.tables[table].name} {shares[table]:.2%}" for table in largest)
    share = unseen.sum() / max(1, look_ups.sum())
    most = f", most of {named}" if named else ""
    return f"{rows.rows} rows; {share:.2%} of the look-ups are of values without an id of their own{most}"
