"""The middle stage of a preparation: the values of training rows are counted, and get their ids.

Ranks share the tables; threads count columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.vocabularies.id_uses import read_counts, read_train_rows, tables_with_counts
from bagpipe_hpc.storage.vocabularies.vocabulary import TableUse, TableVocabulary, load_vocabularies, write_vocabularies
from bagpipe_hpc.storage.vocabularies.waiting_values import WaitingValues, waiting_info, write_waiting
from data_prep.backend import IdMaps
from data_prep.formats.layout import IdRule, Table
from data_prep.ordered_map import ordered_map
from data_prep.parsed_rows import values_of
from data_prep.ranks.board import Tell
from data_prep.recorded import RecordedPreparation
from data_prep.stages.counted_tables import Counted, count_tables, counted_tables
from data_prep.stages.stage_inputs import StageInputs
from data_prep.vocabularies.growth import GrowthRules, TableGrowth, growth_text
from data_prep.vocabularies.hashed_counts import count_hashed
from data_prep.vocabularies.last_uses import known_tables, last_uses_of_rows
from data_prep.vocabularies.vocabulary import counts_of_ids
from data_prep.vocabularies.wide_values import CountedValues

_NAMED = 3
"""Most tables that a note names."""


class MadeVocabularies(NamedTuple):
    """The vocabularies of a preparation.

    Attributes:
        info: the file that holds them.
        waiting: the file of values that are too rare for an id; None where it is not kept.
        tables: the vocabulary of each table, in the order of the layout; None where its values are hashed.
    """

    info: FileInfo
    waiting: FileInfo | None
    tables: tuple[TableVocabulary | None, ...]


def make_vocabularies(given: StageInputs) -> MadeVocabularies:
    """The vocabulary of each table: the one already in the folder, that of earlier rows, or a new one.

    Collective over: all ranks of the team.
    """
    team, work, earlier = given.team, given.work, given.earlier
    names = [table.name for table in given.layout.tables]
    takes_over = earlier is not None and given.settings.grow is None
    waiting = team.first_does(lambda: waiting_info(work.output)) if work.vocabularies is not None else None
    if work.vocabularies is not None and (takes_over or waiting is not None):
        info = work.vocabularies
    elif earlier is None:
        info, waiting = _count(given)
    elif given.settings.grow is not None:
        info, waiting = _grow(given, earlier)
    else:
        info, waiting = team.first_does(lambda: _take_over(given, earlier)), None
    if earlier is not None and given.settings.grow is None:
        return MadeVocabularies(info, waiting, earlier.vocabularies)
    saved = team.each_does(lambda: load_vocabularies(work.output / info.file, names))
    return MadeVocabularies(info, waiting, tuple(saved.get(name) for name in names))


def _take_over(given: StageInputs, earlier: RecordedPreparation) -> FileInfo:
    """Copy the vocabularies of earlier rows."""
    with given.work.naming_output():
        copied = earlier.copy_vocabularies(given.work.output)
        given.work.note_vocabularies(copied)
    given.progress(f"took the vocabularies of {earlier.directory}")
    return copied


def _count(given: StageInputs) -> tuple[FileInfo, FileInfo]:
    """Count the values of training rows, each rank those of its own tables, and write the vocabularies.

    Returns:
        The file of vocabularies, and that of values that are too rare for an id.
    """
    rules = {table.name: given.settings.id_rule(table) for table in given.layout.tables}
    _count_tables(given, rules)
    return given.team.first_does(lambda: _write_counted(given, rules))


def _grow(given: StageInputs, earlier: RecordedPreparation) -> tuple[FileInfo, FileInfo]:
    """Let the vocabularies of earlier rows grow with the training rows, and write them; returns as `_count`."""
    rules = {
        table.name: IdRule(1, None, 2)
        if vocabulary is not None
        else IdRule(1, -1, given.settings.id_rule(table).hashed_rows)
        for table, vocabulary in zip(given.layout.tables, earlier.vocabularies, strict=True)
    }
    _count_tables(given, rules)
    return given.team.first_does(lambda: _write_grown(given, earlier))


def _count_tables(given: StageInputs, rules: Mapping[str, IdRule]) -> None:
    """Count the values of training rows, or the ids of hashed tables, each rank for its own tables."""

    def count(tables: Sequence[Table]) -> Iterator[tuple[int, Counted]]:
        def told(fields: int) -> None:
            given.team.go_on(Tell(fields, fields, finished=True))

        of_tables = [rules[table.name] for table in tables]
        found = given.backend.build_vocabularies(given.pool, given.rows, tables, given.train_rows, of_tables, told)
        yield from ((place, counted) for place, counted in enumerate(found) if counted is not None)
        hashed = [place for place, counted in enumerate(found) if counted is None]
        del found
        yield from zip(
            hashed,
            count_hashed(
                given.pool,
                given.rows,
                given.train_rows,
                [tables[place] for place in hashed],
                [of_tables[place] for place in hashed],
                given.backend,
            ),
            strict=True,
        )

    count_tables(given.team, given.rows, given.train_rows, given.work, given.layout.tables, count)


def _write_counted(given: StageInputs, rules: Mapping[str, IdRule]) -> tuple[FileInfo, FileInfo]:
    """Write new vocabularies of what was counted; only the values of all tables stay in memory. Returns as `_count`."""
    work, tables, buckets = given.work, given.layout.tables, given.settings.unseen_buckets
    vocabularies: dict[str, TableVocabulary] = {}

    def waiting_values() -> Iterator[tuple[str, WaitingValues]]:
        for table, found in zip(tables, counted_tables(work, tables), strict=True):
            if isinstance(found, CountedValues):
                vocabularies[table.name] = TableVocabulary(found.values, buckets)
                yield table.name, found.rare

    def uses() -> Iterator[tuple[str, TableUse]]:
        for table, found in zip(tables, counted_tables(work, tables), strict=True):
            counts = counts_of_ids(found, buckets) if isinstance(found, CountedValues) else found.counts
            if counts is not None:
                yield table.name, TableUse(counts)

    with work.naming_output():
        waiting = write_waiting(work.output, waiting_values())
        info = write_vocabularies(work.output, vocabularies, buckets, uses(), given.train_rows)
        work.note_vocabularies(info)
    ids = sum(vocabulary.rows for vocabulary in vocabularies.values())
    hashed = [table.name for table in tables if table.name not in vocabularies]
    others = "".join(
        f"; {', '.join(name for name in hashed if rules[name].hashed_rows == rows)} hashed to {rows} ids each"
        for rows in sorted({rules[name].hashed_rows for name in hashed})
    )
    given.progress(f"built vocabularies of {ids:,} ids from {given.train_rows:,} rows{others}")
    return info, waiting


def _write_grown(given: StageInputs, earlier: RecordedPreparation) -> tuple[FileInfo, FileInfo]:
    """Write the vocabularies of earlier rows, grown with what was counted; returns as `_count`."""
    work, settings, train_rows, tables = given.work, given.settings, given.train_rows, given.layout.tables
    known = known_tables(earlier)
    first = read_train_rows(earlier.directory, earlier.manifest)
    all_rows = first + train_rows

    def growth_rules(rule: IdRule) -> GrowthRules:
        limit = None if rule.most_values is None else rule.hashed_rows
        return GrowthRules(rule.min_count, limit, settings.evict_unused, all_rows)

    growing = [
        (table, TableGrowth(table.values, known[table.name], day, growth_rules(settings.id_rule(table))))
        for table, day in zip(tables, counted_tables(work, tables), strict=True)
        if isinstance(day, CountedValues)
    ]
    watched = [growth.watched for _, growth in growing]
    of_growing = [table for table, _ in growing]
    last_uses = last_uses_of_rows(given.pool, given.rows, train_rows, first, of_growing, watched, given.backend)
    grown = {table.name: growth.grown(last) for (table, growth), last in zip(growing, last_uses, strict=True)}
    vocabularies = {name: table.vocabulary for name, table in grown.items()}

    def uses() -> Iterator[tuple[str, TableUse]]:
        kept = tables_with_counts(earlier.directory, earlier.manifest)
        for table, day in zip(tables, counted_tables(work, tables), strict=True):
            if isinstance(day, CountedValues):
                yield table.name, grown[table.name].use
            elif day.counts is not None and table.name in kept:
                before = read_counts(earlier.directory, earlier.manifest, table.name)
                yield table.name, TableUse(before + day.counts)

    with work.naming_output():
        waiting = write_waiting(work.output, ((name, table.waiting) for name, table in grown.items()))
        info = write_vocabularies(work.output, vocabularies, settings.unseen_buckets, uses(), all_rows)
        work.note_vocabularies(info)
    text = growth_text(list(known.values()), list(grown.values()))
    given.progress(f"grew the vocabularies of {earlier.directory} by {train_rows:,} rows: {text}")
    return info, waiting


def unseen_note(given: StageInputs, vocabularies: Sequence[TableVocabulary | None], id_maps: IdMaps) -> str:
    """How many look-ups of later rows have values without an id of their own, in words, with the largest shares.

    Args:
        given: the rows, and threads to use.
        vocabularies: those of the layout's tables; None where values are hashed, so that none is unseen.
        id_maps: gives values their ids.
    """
    rows, layout = given.rows, given.layout
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
    for table, found, all_of_it in ordered_map(given.pool, count, pieces, ahead=2 * given.team.threads):
        unseen[table] += found
        look_ups[table] += all_of_it
    shares = unseen / np.maximum(1, look_ups)
    largest = [table for table in np.argsort(-shares, kind="stable").tolist() if unseen[table]][:_NAMED]
    named = ", ".join(f"{layout.tables[table].name} {shares[table]:.2%}" for table in largest)
    share = unseen.sum() / max(1, look_ups.sum())
    most = f", most of {named}" if named else ""
    return f"{rows.rows} rows; {share:.2%} of the look-ups are of values without an id of their own{most}"
