"""Vocabularies grow day by day as a slow, plain model of the rules says."""

import hashlib
import importlib
import inspect
import random
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import data_prep.vocabularies.growth
from bagpipe_hpc.storage.shards.check import verify_shards
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from bagpipe_hpc.storage.vocabularies.id_uses import (
    read_counts,
    read_last_use,
    read_reborn,
    read_train_rows,
    tables_with_counts,
)
from bagpipe_hpc.storage.vocabularies.vocabulary import TableUse, TableVocabulary, read_table_vocabulary
from bagpipe_hpc.storage.vocabularies.waiting_values import WaitingValues, read_waiting
from bagpipe_hpc.tools.inspection.describe import describe
from data_prep.formats.columns import Values
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.vocabularies import hashed_counts, vocabulary, wide_values
from data_prep.vocabularies.growth import GrowthRules, KnownTable, TableGrowth, growth_text
from data_prep.vocabularies.vocabulary import HashedIds, counts_of_ids
from tests.click_rows import random_rows
from tests.drawing import share_of
from tests.unit.data_prep.plain_preparation import BACKENDS, silent, small_blocks, write_text

Bag = list[Any]
"""The values of a table in one row, None where one is missing."""
KINDS = {Values.HEX: pa.uint32(), Values.INTEGER: pa.int64(), Values.TEXT: pa.string()}


@dataclass
class Model:
    """A table, one value at a time."""

    kind: pa.DataType
    buckets: int = 0
    ids: dict[Any, int] = field(default_factory=dict)
    counts: Counter[Any] = field(default_factory=Counter)  # of values with an id, and of waiting ones
    last: dict[Any, int] = field(default_factory=dict)
    rows: int = 0  # of the table
    train_rows: int = 0
    look_ups: Counter[Any] = field(default_factory=Counter)  # of all days, None among them
    reborn: list[int] = field(default_factory=list)

    def day(self, bags: list[Bag], min_count: int, limit: int | None = None, evict: int | None = None) -> None:
        """The first day, or a later one."""
        self.rows = self.rows or 1 + self.buckets
        before, used = self.rows, set()
        for bag in bags:
            for value in bag:
                self.look_ups[value] += 1
                if value is not None:
                    self.counts[value] += 1
                    self.last[value] = self.train_rows
                    used.add(value)
            self.train_rows += 1
        for value in list(self.counts):
            is_old = evict is not None and self.last[value] < self.train_rows - evict
            only_waits = value not in self.ids and (value not in used or self.counts[value] < min_count)
            if is_old and not only_waits:
                del self.counts[value]
                self.ids.pop(value, None)
        candidates = [value for value in used if value not in self.ids and self.counts[value] >= min_count]
        self.reborn = []
        for value in sorted(candidates, key=lambda value: (-self.counts[value], value)):
            if free := self.free:
                self.ids[value] = free[0]
                self.reborn += [free[0]] if free[0] < before else []
            elif limit is None or self.rows < limit:
                self.ids[value] = self.rows
                self.rows += 1

    @property
    def free(self) -> list[int]:
        return sorted(set(range(1 + self.buckets, self.rows)) - set(self.ids.values()))

    def unknown_id(self, value: Any) -> int:
        """Where a value without an id is looked up."""
        if value is None or not self.buckets:
            return 0
        return int(HashedIds(self.buckets + 1).ids(pa.array([value], self.kind))[0])

    def id_of(self, value: Any) -> int:
        return self.ids[value] if value in self.ids else self.unknown_id(value)

    def assert_is(self, table: KnownTable) -> None:
        found, use, waiting = table.vocabulary, table.use, table.waiting
        assert found.rows == self.rows
        assert dict(zip(found.values.tolist(), found.ids.tolist(), strict=True)) == self.ids
        assert found.free.tolist() == self.free
        assert dict(zip(waiting.values.tolist(), waiting.counts.tolist(), strict=True)) == {
            value: count for value, count in self.counts.items() if value not in self.ids
        }
        assert waiting.values.tolist() == sorted(waiting.values.tolist())
        counts, last = [0] * self.rows, [-1] * self.rows
        for value, look_ups in self.look_ups.items():
            own = self.counts[value] if value in self.ids else 0
            counts[self.id_of(value)] += own
            counts[self.unknown_id(value)] += look_ups - own  # uses before the value lost an id
        for value, id_ in self.ids.items():
            last[id_] = self.last[value]
        assert use.counts.tolist() == counts
        assert use.last_use is None or use.last_use.tolist() == last
        assert use.reborn.tolist() == self.reborn


def counted(kind: Values, bags: list[Bag], min_count: int) -> wide_values.CountedValues:
    column = pa.chunked_array([pa.array([value for bag in bags for value in bag], KINDS[kind])])
    of_kind = vocabulary.counted_values if kind.is_32_bit else wide_values.counted_values
    return of_kind(column, min_count)


def last_uses(values: np.ndarray, bags: list[Bag], first: int) -> np.ndarray:
    last = {value: first + number for number, bag in enumerate(bags) for value in bag}
    return np.array([last.get(value, -1) for value in values.tolist()], dtype=np.int64)


def bags_of(kind: Values) -> st.SearchStrategy[list[Bag]]:
    value = st.sampled_from(["", "a", "b", "é", "Z", "ab", "ba"]) if kind is Values.TEXT else st.integers(0, 7)
    return st.lists(st.lists(st.none() | value, max_size=3), min_size=1, max_size=8)


Day = tuple[list[Bag], int | None, int | None]
"""Rows of a later day, rows that the table may gain, and after how many rows an unused value is evicted."""


def grow_day_by_day(
    kind: Values, first_bags: list[Bag], days: list[Day], min_count: int, buckets: int, growth_of: Any = TableGrowth
) -> None:
    """Compare a table with the model after each day.

    Raises:
        AssertionError: they differ.
    """
    model = Model(KINDS[kind], buckets)
    model.day(first_bags, min_count)
    first = counted(kind, first_bags, min_count)
    last = np.concatenate((np.full(1 + buckets, -1), last_uses(first.values, first_bags, 0)))
    use = TableUse(counts_of_ids(first, buckets), last)
    table = KnownTable(TableVocabulary(first.values, buckets), use, first.rare)
    model.assert_is(table)
    for bags, gain, evict in days:
        limit, seen = None if gain is None else model.rows + gain, model.train_rows
        model.day(bags, min_count, limit, evict)
        rules = GrowthRules(min_count, limit, evict, model.train_rows)
        growth = growth_of(kind, table, counted(kind, bags, 1), rules)
        table = growth.grown(last_uses(growth.watched, bags, seen))
        model.assert_is(table)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=share_of(40), deadline=None)
@given(data=st.data(), min_count=st.integers(1, 3), buckets=st.integers(0, 2))
def test_a_table_grows_as_the_rules_say(kind: Values, data: st.DataObject, min_count: int, buckets: int) -> None:
    first = data.draw(bags_of(kind))
    day = st.tuples(bags_of(kind), st.none() | st.integers(0, 2), st.none() | st.integers(1, 14))
    grow_day_by_day(kind, first, data.draw(st.lists(day, min_size=1, max_size=4)), min_count, buckets)


MUTANTS = {
    "a known value does not count": ("[place[~is_new] - 1] += day.counts[~is_new]", "[place[~is_new] - 1] += 0"),
    "missing values do not count": ("self._others[0] += day.look_ups - day.counts.sum()", "pass"),
    "new values do not count for id 0 or their bucket": ("add_unknown(self._others, new, new_counts)", "pass"),
    "only the day counts": ("counts = waiting.counts.copy()", "counts = 0 * waiting.counts"),
    "only the days before count": ("counts[place[place > 0] - 1] += new_counts[place > 0]", "pass"),
    "a value need not be used today": ("used_today & (", "("),
    "more than min_count": ("self._value_counts >= rules.min_count", "self._value_counts > rules.min_count"),
    "rare values first": ('("count", "descending")', '("count", "ascending")'),
    "large values first": ('("value", "ascending")', '("value", "descending")'),
    "order by value alone": ('[("count", "descending"), ("value", "ascending")]', '[("value", "ascending")]'),
    "last uses of the days before are forgotten": (
        "np.maximum(before.use.last_use[old_ids], last_use[:split])",
        "last_use[:split]",
    ),
    "uses of the day do not keep a value": (
        "np.maximum(before.use.last_use[old_ids], last_use[:split])",
        "before.use.last_use[old_ids]",
    ),
    "evicted a row late": ("rules.train_rows - rules.evict_unused", "rules.train_rows - rules.evict_unused - 1"),
    "evicted a row early": ("rules.train_rows - rules.evict_unused", "rules.train_rows - rules.evict_unused + 1"),
    "nothing is evicted": ("stays, alive = old_last >= oldest,", "stays, alive = old_last >= -1,"),
    "late candidates are admitted": ("last_use[split:] >= oldest\n", "last_use[split:] >= -1\n"),
    "ids that were free stay so": ("(known.free, old_ids[~stays])", "(known.free[:0], old_ids[~stays])"),
    "ids of evicted values stay free": ("(known.free, old_ids[~stays])", "(known.free, old_ids[:0])"),
    "the highest free id first": ("free = np.sort(", "free = -np.sort(-"),
    "no limit": ("rules.most_rows is None", "True"),
    "free ids do not help at the limit": ("len(free) + max(0, rules", "max(0, rules"),
    "a row too many": ("rules.most_rows - known.rows)", "rules.most_rows - known.rows + 1)"),
    "new ids before free ones": ("len(admitted) - len(free)), dtype", "len(admitted)), dtype"),
    "an evicted value keeps its count where it was": (
        "add_unknown(self._others, known.values[~stays], self._counts[~stays])",
        "pass",
    ),
    "earlier uses of an admitted value stay with id 0": (
        "add_unknown(self._others, self._values[admitted], -self._value_counts[admitted])",
        "pass",
    ),
    "an admitted value begins at 0": ("self._value_counts[admitted]))\n", "0 * self._value_counts[admitted]))\n"),
    "admitted values still wait": ("still[admitted] = still[forgotten] = False", "still[forgotten] = False"),
    "late candidates keep their counts": ("still[admitted] = still[forgotten] = False", "still[admitted] = False"),
    "waiting values are not in order": ("waiting[ascending], waiting_counts[ascending]", "waiting, waiting_counts"),
    "all new ids are reborn": ("new_ids[new_ids < known.rows]", "new_ids"),
    "none is reborn": ("new_ids[new_ids < known.rows]", "new_ids[:0]"),
    "free ids are lost": ("free[len(admitted) :]", "free[:0]"),
    "last uses of admitted values are lost": (
        "(old_last[stays], last_admitted)",
        "(old_last[stays], 0 * last_admitted)",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule broken in turn; drawn days tell it from the model."""
    source, (rule, broken) = inspect.getsource(data_prep.vocabularies.growth), MUTANTS[name]
    assert rule in source
    (tmp_path / "broken_growth.py").write_text(source.replace(rule, broken))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_growth", raising=False)
    mutant = importlib.import_module("broken_growth")
    with pytest.raises((AssertionError, IndexError, ValueError)):
        grow_many(mutant.TableGrowth)


def grow_many(growth_of: Any) -> None:
    """Compare tables with the model on many drawn days."""
    for seed in range(400):
        grow_day_by_day(*drawn_days(seed), growth_of)


def test_no_rule_is_broken() -> None:
    grow_many(TableGrowth)


def drawn_days(seed: int) -> tuple[Values, list[Bag], list[Day], int, int]:
    """As hypothesis draws them, but quickly."""
    rng = random.Random(seed)
    values = [None, *range(9)]

    def bags() -> list[Bag]:
        return [rng.choices(values, k=rng.randint(0, 3)) for _ in range(rng.randint(1, 9))]

    days = [(bags(), rng.choice([None, 0, 1]), rng.choice([None, 3, 8, 14])) for _ in range(4)]
    return Values.HEX, bags(), days, rng.randint(1, 3), rng.randint(0, 2)


def column_bags(lines: list[str], column: int) -> list[Bag]:
    fields = [line.split("\t")[14 + column] for line in lines]
    return [[int(text, 16) if text else None] for text in fields]


def known_table(output: Path, manifest: ShardManifest, name: str) -> KnownTable:
    use = TableUse(
        read_counts(output, manifest, name), read_last_use(output, manifest, name), read_reborn(output, manifest, name)
    )
    return KnownTable(read_table_vocabulary(output, manifest, name), use, read_waiting(output, manifest, name))


@pytest.mark.parametrize(
    ("limit", "buckets", "evict", "backend"),
    [
        (None, 0, None, "auto"),
        pytest.param(None, 2, 40, "reference", marks=pytest.mark.slow),
        (None, 2, 40, "auto"),
        (17, 0, 30, "auto"),
        (15, 0, 30, "auto"),  # so few rows that values of some tables are hashed
    ],
)
def test_days_of_clicks_grow_as_the_rules_say(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    limit: int | None,
    buckets: int,
    evict: int | None,
) -> None:
    """Ids of shards, counts, last uses, waiting values and reborn ids, over three days, of which the last is short."""
    small_blocks(monkeypatch, part_rows=20)
    models = [Model(pa.uint32(), buckets) for _ in range(26)]
    min_count = 3 if limit is None else 1
    first = PrepareSettings(
        min_count=3, max_rows_per_table=limit, unseen_buckets=buckets, rows_per_shard=25, backend=backend
    )
    parent: Path | None = None
    hashed_ids: dict[str, list[int]] = defaultdict(list)
    reborn = 0
    for number, rows in enumerate((60, 50, 12)):
        lines = random_rows(rows, seed=10 + number)
        source, output = write_text(tmp_path / f"day_{number}", lines), tmp_path / f"out_{number}"
        grow = PrepareSettings(grow=parent, evict_unused=evict if parent else None, rows_per_shard=25, backend=backend)
        manifest = prepare_clicks([source], output, grow if parent else first, silent)
        verify_shards(output, manifest, "full")
        assert manifest == load_manifest(output)
        train_rows = rows - round(rows * 0.1)
        sparse = []
        for split in ("train", "test"):
            with ClickShards(output, manifest, split) as shards:
                sparse.append(shards.read_sparse(0, shards.rows))
        ids = np.concatenate(sparse)
        for column, model in enumerate(models):
            name, bags = f"C{column + 1}", column_bags(lines, column)
            if name in manifest.hashed_tables:
                assert limit is not None
                hashed_ids[name] += ids[:train_rows, column].tolist()
                counts = np.bincount(hashed_ids[name], minlength=limit)
                assert read_counts(output, manifest, name).tolist() == counts.tolist()
                continue
            model.day(bags[:train_rows], min_count, limit, evict if parent else None)
            model.assert_is(known_table(output, manifest, name))
            assert ids[:, column].tolist() == [model.id_of(bag[0]) for bag in bags]
            reborn += len(model.reborn)
        assert read_train_rows(output, manifest) == max(model.train_rows for model in models)
        if parent is None:
            assert manifest.grown_from is None
        else:
            assert manifest.grown_from == hashlib.sha256((parent / "vocabularies.h5").read_bytes()).hexdigest()
            assert manifest.grown_from in describe(output).text
        parent = output
    assert bool(reborn) == bool(evict)
    assert bool(hashed_ids) == (limit == 15)


@pytest.mark.skipif(len(BACKENDS) < 2, reason="needs both backends")
def test_the_same_days_give_the_same_bytes(tmp_path: Path) -> None:
    """Histories and items that share a table, genres with weights; whatever the backend, and once more."""
    for day in range(2):
        generate_clicks(400, tmp_path / f"day_{day}.csv", seed=1 + day, zipf=1.3, ids_at_most=90, kind="sequences")
    found = []
    for number, backend in enumerate(("reference", "auto", "auto")):
        first, grown = tmp_path / f"first_{number}", tmp_path / f"grown_{number}"
        chosen = PrepareSettings("sequences", min_count=5, backend=backend)
        prepare_clicks([str(tmp_path / "day_0.csv")], first, chosen, silent)
        chosen = PrepareSettings(grow=first, evict_unused=300, backend=backend)
        manifest = prepare_clicks([str(tmp_path / "day_1.csv")], grown, chosen, silent)
        found.append([(grown / name).read_bytes() for name in ("vocabularies.h5", "waiting.h5")])
    assert found[0] == found[1] == found[2]
    model = Model(pa.int64())
    for day, evict in ((0, None), (1, 300)):
        lines = [line.split(",") for line in (tmp_path / f"day_{day}.csv").read_text().splitlines()[1:361]]
        bags = [[int(text) for text in (*filter(None, row[7].split("|")), row[6])] for row in lines]
        model.day(bags, 5, None, evict)
    model.assert_is(known_table(grown, manifest, "item"))


def test_a_kill_between_vocabularies_and_shards_changes_nothing(tmp_path: Path) -> None:
    sources = [write_text(tmp_path / f"day_{day}", random_rows(60, seed=day)) for day in range(2)]
    prepare_clicks([sources[0]], tmp_path / "first", PrepareSettings(), silent)
    grow = PrepareSettings(grow=tmp_path / "first", evict_unused=50)
    expected = prepare_clicks([sources[1]], tmp_path / "whole", grow, silent)

    def stop(message: str) -> None:
        if message.startswith("grew"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_clicks([sources[1]], tmp_path / "killed", grow, stop)
    assert prepare_clicks([sources[1]], tmp_path / "killed", grow, silent) == expected
    said: list[str] = []
    assert prepare_clicks([sources[1]], tmp_path / "killed", grow, said.append) == expected
    assert "already prepared" in said[-1]


def test_what_became_of_the_ids_is_said() -> None:
    """Of a table in which one of three new values takes an id of the two that lose theirs, beside one that stays."""

    def known(values: list[int], *, free: tuple[int, ...] = (), reborn: tuple[int, ...] = ()) -> KnownTable:
        none = np.empty(0, dtype=np.int64)
        vocabulary = TableVocabulary(np.array(values), 0, np.array(free, dtype=np.int64))
        return KnownTable(vocabulary, TableUse(none, none, np.array(reborn, dtype=np.int64)), WaitingValues(none, none))

    before = [known([11, 12, 13]), known([7])]
    after = [known([11, 14, 15, 16], free=(3,), reborn=(2,)), known([7])]
    said = "2 new ids, 1 ids that other values had; 2 values lost theirs, and 1 ids are free"
    assert growth_text(before, after) == said


def test_a_preparation_says_how_it_grew_and_adds_counts_where_there_were_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one has counted no ids of the hashed table: too many for it."""
    columns = [{"name": "click", "kind": "label"}, {"name": "item", "kind": "categorical"}]
    columns += [{"name": "user", "kind": "categorical", "hash_rows": 9}]  # type: ignore[dict-item]
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, rows in ((first, "0,x,p\n1,y,q\n"), (second, "1,x,p\n1,z,p\n")):
        folder.with_suffix(".csv").write_text(f"click,item,user\n{rows}")
    asked = PrepareSettings("schema", schema={"columns": columns}, min_count=1, test_fraction=0)
    with monkeypatch.context() as patch:
        patch.setattr(hashed_counts, "MOST_COUNTED_ROWS", 8)
        prepare_clicks([str(first.with_suffix(".csv"))], first, asked, silent)
    told: list[str] = []
    grown = prepare_clicks([str(second.with_suffix(".csv"))], second, PrepareSettings(grow=first), told.append)
    became = "1 new ids, 0 ids that other values had; 0 values lost theirs, and 0 ids are free"
    assert f"grew the vocabularies of {first} by 2 rows: {became}" in told
    assert tables_with_counts(second, grown) == ["item"]
