"""How a vocabulary grows with the training rows of a later day: which values get an id, and which lose theirs.

Day by day, for each table:

* *Count.* Uses of a value count over all days from the first, or from the last time that it lost its id.
* *Admit.* A value without an id that the day uses gets one if its count has reached `min_count`.
* *Evict.* With `evict_unused` N, a value that is not used in the last N training rows, the day's included, loses its id
  and its count; a value that would be admitted but is not used in these rows is not admitted, and loses its count, too.
* *Number.* Admitted values, by descending count and then by value, take the ids that no value has, the lowest first,
  and then new ids at the end of the table. Every other value keeps its id.
* *Limit.* A table of `max_rows_per_table` rows does not grow; a value that finds no place keeps its count, and is
  considered again when a later day uses it.

Shapes: `V` values of a vocabulary, `W` waiting values, `C` candidates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bagpipe_hpc.storage.vocabularies.vocabulary import Int64s, TableUse, TableValues, TableVocabulary
from bagpipe_hpc.storage.vocabularies.waiting_values import WaitingValues
from data_prep.formats.columns import Values
from data_prep.vocabularies.vocabulary import add_unknown, places_of
from data_prep.vocabularies.wide_values import CountedValues, as_column


@dataclass(frozen=True, eq=False)
class KnownTable:
    """All that is known about the values of a table after some days.

    Attributes:
        vocabulary: which value has which id.
        use: how the ids were used, their last uses included.
        waiting: values without an id, with their counts.
    """

    vocabulary: TableVocabulary
    use: TableUse
    waiting: WaitingValues


@dataclass(frozen=True)
class GrowthRules:
    """Which values get an id, and which keep it.

    Attributes:
        min_count: fewest uses of a value that gets an id.
        most_rows: most rows of a table; None without a limit.
        evict_unused: training rows after which an unused value loses its id; None to keep all.
        train_rows: training rows of all days, this one included.
    """

    min_count: int
    most_rows: int | None
    evict_unused: int | None
    train_rows: int


class TableGrowth:
    """The growth of a table by one day: first which values are watched, then, with their last uses, the outcome.

    Args:
        kind: kind of the values.
        before: the table after the days before.
        day: all values of the day's training rows, counted without a threshold.
        rules: which values get an id, and which keep it.

    Attributes:
        watched: the values `[V + C]` whose last uses in the day matter: those with an id, in the order of ids, then
            candidates.
    """

    def __init__(self, kind: Values, before: KnownTable, day: CountedValues, rules: GrowthRules) -> None:
        self._before, self._rules = before, rules
        known, waiting = before.vocabulary, before.waiting
        place = places_of(kind, known.values).ids(as_column(day.values))
        is_new = place == 0
        self._counts = before.use.counts[known.ids]
        self._counts[place[~is_new] - 1] += day.counts[~is_new]
        self._others = before.use.counts[: 1 + known.unseen_buckets].copy()
        self._others[0] += day.look_ups - day.counts.sum()
        new, new_counts = day.values[is_new], day.counts[is_new]
        add_unknown(self._others, new, new_counts)
        place = places_of(kind, waiting.values).ids(as_column(new))
        counts = waiting.counts.copy()
        counts[place[place > 0] - 1] += new_counts[place > 0]
        used_today = np.zeros(len(counts), dtype=np.bool_)
        used_today[place[place > 0] - 1] = True
        first_seen = place == 0
        self._values: TableValues = np.concatenate((waiting.values, new[first_seen]))
        self._value_counts = np.concatenate((counts, new_counts[first_seen]))
        used_today = np.concatenate((used_today, np.ones(int(first_seen.sum()), dtype=np.bool_)))
        enough = np.flatnonzero(used_today & (self._value_counts >= rules.min_count))
        self._candidates = enough[by_count(self._values[enough], self._value_counts[enough])]
        self.watched: TableValues = np.concatenate((known.values, self._values[self._candidates]))

    def grown(self, last_use: Int64s) -> KnownTable:
        """The table after the day.

        Args:
            last_use: for each watched value, int64 `[V + C]`, the number of the day's last training row that uses it,
                counted over all days; -1 if the day does not use it.
        """
        before, rules = self._before, self._rules
        known, old_ids = before.vocabulary, before.vocabulary.ids
        if before.use.last_use is None:
            raise ValueError("a table grows from known last uses")
        split = len(known.values)
        old_last = np.maximum(before.use.last_use[old_ids], last_use[:split])
        oldest = -1 if rules.evict_unused is None else rules.train_rows - rules.evict_unused
        stays, alive = old_last >= oldest, last_use[split:] >= oldest
        free = np.sort(np.concatenate((known.free, old_ids[~stays])))
        room = len(self._candidates) if rules.most_rows is None else len(free) + max(0, rules.most_rows - known.rows)
        admitted, forgotten = self._candidates[alive][:room], self._candidates[~alive]
        last_admitted = last_use[split:][alive][:room]
        new_ids = np.concatenate(
            (free[: len(admitted)], known.rows + np.arange(max(0, len(admitted) - len(free)), dtype=np.int64))
        )
        add_unknown(self._others, known.values[~stays], self._counts[~stays])
        add_unknown(self._others, self._values[admitted], -self._value_counts[admitted])
        rows = known.rows + max(0, len(admitted) - len(free))
        ids = np.concatenate((old_ids[stays], new_ids))
        order = np.argsort(ids)
        values = np.concatenate((known.values[stays], self._values[admitted]))[order]
        counts, last = np.zeros(rows, dtype=np.int64), np.full(rows, -1, dtype=np.int64)
        counts[: len(self._others)] = self._others
        counts[ids] = np.concatenate((self._counts[stays], self._value_counts[admitted]))
        last[ids] = np.concatenate((old_last[stays], last_admitted))
        still = np.ones(len(self._values), dtype=np.bool_)
        still[admitted] = still[forgotten] = False
        waiting, waiting_counts = self._values[still], self._value_counts[still]
        ascending = pc.sort_indices(as_column(waiting)).to_numpy()
        return KnownTable(
            TableVocabulary(values, known.unseen_buckets, free[len(admitted) :]),
            TableUse(counts, last, new_ids[new_ids < known.rows]),
            WaitingValues(waiting[ascending], waiting_counts[ascending]),
        )


def growth_text(before: Sequence[KnownTable], after: Sequence[KnownTable]) -> str:
    """How the ids of all tables changed, in words."""
    rows, free, values = (
        [sum(size(table.vocabulary) for table in tables) for tables in (before, after)]
        for size in (lambda found: found.rows, lambda found: len(found.free), lambda found: len(found.values))
    )
    reborn, new = sum(len(table.use.reborn) for table in after), rows[1] - rows[0]
    lost = values[0] + reborn + new - values[1]
    of_old = f"{reborn:,} ids that other values had; {lost:,} values lost theirs"
    return f"{new:,} new ids, {of_old}, and {free[1]:,} ids are free"


def by_count(values: TableValues, counts: Int64s) -> NDArray[Any]:
    """Indices that sort distinct values by descending count, and equally frequent ones by value."""
    table = pa.table({"value": as_column(values), "count": pa.array(counts)})
    order: NDArray[Any] = pc.sort_indices(table, [("count", "descending"), ("value", "ascending")]).to_numpy()
    return order
