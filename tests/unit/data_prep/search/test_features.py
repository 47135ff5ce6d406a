"""What is searched is what `prepare` makes, of training rows alone, and chains that make no sense are not tried."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bagpipe_hpc.storage.shards.reader import ClickShards
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.schema.columns import CategoricalColumn, LabelColumn, NumericColumn
from data_prep.schema.document import FileRules, Schema, to_document
from data_prep.search.descriptors import describe_columns
from data_prep.search.features import ColumnFeatures
from data_prep.search.pipelines import PIPELINES, PLAIN, Pipeline, indicator_of
from data_prep.search.sampled_rows import SampledRows

ROWS, TRAIN = 80, 60


def sampled(**columns: list[Any]) -> SampledRows:
    numbers = tuple(pa.array(values, pa.float64()) for values in columns.values())
    labels = (np.arange(ROWS) % 3 == 0).astype(np.float32)
    return SampledRows(tuple(NumericColumn(name=name) for name in columns), numbers, labels, TRAIN)


def drawn(seed: int) -> list[float | None]:
    rng = np.random.default_rng(seed)
    return [None if rng.random() < 0.2 else round(float(x), 3) for x in rng.normal(1, 3, ROWS)]


def test_each_chain_gives_the_bits_that_prepare_gives(tmp_path: Path) -> None:
    rows = sampled(x=drawn(1))
    features = ColumnFeatures(rows)
    derived = [
        replace(features.described([number])[0], name=f"x{number}", source="x") for number in range(len(PIPELINES))
    ]
    derived.append(indicator_of(rows.columns[0]))
    schema = Schema(
        FileRules(),
        (LabelColumn(name="y"), CategoricalColumn(name="c"), rows.columns[0]),
        tuple(derived),
    )
    text = ["" if x is None else repr(x) for x in rows.numbers[0].to_pylist()]
    (tmp_path / "rows.csv").write_text("y,c,x\n" + "".join(f"1,a,{x}\n" for x in text))
    settings = PrepareSettings("schema", schema=to_document(schema), min_count=1, test_fraction=1 - TRAIN / ROWS)
    manifest = prepare_clicks([str(tmp_path / "rows.csv")], tmp_path / "out", settings, lambda _: None)
    assert manifest.rows("train") == TRAIN
    prepared = []
    for split in ("train", "test"):
        with ClickShards(tmp_path / "out", manifest, split) as shards:
            prepared.append(shards.read_dense(0, shards.rows))
    searched = features.matrix([rows.columns[0], *derived])
    assert np.concatenate(prepared).tobytes() == searched.tobytes()


class TakesFromAllRows(ColumnFeatures):
    """What the search must not do."""

    def _train_rows(self, values: Any) -> Any:
        return values


def differs_by_validation_rows(kind: type[ColumnFeatures]) -> bool:
    """Whether anything that the search takes from rows changes with the validation rows."""
    rows = sampled(x=drawn(1), y=drawn(2))
    changed = [pa.concat_arrays([numbers[:TRAIN], pa.array([1e9] * (ROWS - TRAIN))]) for numbers in rows.numbers]
    labels = np.concatenate((rows.labels[:TRAIN], 1 - rows.labels[TRAIN:]))
    others = replace(rows, numbers=tuple(changed), labels=labels)
    first, second = kind(rows), kind(others)
    for chain in range(len(PIPELINES)):
        if first.described([chain, chain]) != second.described([chain, chain]):  # clip
            return True
        one, two = (made.matrix(made.described([chain, chain])) for made in (first, second))
        if one[:TRAIN].tobytes() != two[:TRAIN].tobytes():
            return True
    attributes = [describe_columns(made, of).tobytes() for made, of in ((first, rows), (second, others))]
    return (first.valid != second.valid).any() or attributes[0] != attributes[1]


def test_validation_rows_change_nothing_that_is_taken_from_rows() -> None:
    assert not differs_by_validation_rows(ColumnFeatures)


def test_a_search_that_takes_from_all_rows_is_found_out() -> None:
    assert differs_by_validation_rows(TakesFromAllRows)


def number_of(filling: str, reshaping: str, scaling: str) -> int:
    return PIPELINES.index(Pipeline(filling, reshaping, scaling))


def test_chains_that_make_no_sense_are_known() -> None:
    rare = [0.0] * 70 + [float(x) for x in range(10)]
    rare = rare[::-1]
    below = [-float(x) for x in range(ROWS)]
    rows = sampled(rare=rare, below=below, alike=[3.0] * ROWS, none=[None] * ROWS, huge=[1e300, *[0.0] * (ROWS - 1)])
    features = ColumnFeatures(rows)
    assert [column.name for column in features.columns] == ["rare", "below"]
    assert [column.name for column in features.left_out] == ["alike", "none", "huge"]
    assert features.valid[:, PLAIN].all()
    assert features.valid[0, number_of("constant", "none", "standard")]
    assert not features.valid[0, number_of("constant", "none", "robust")]  # its quartiles are alike
    assert not features.valid[1, number_of("constant", "log", "none")]  # the logarithm of all is 0
    assert features.valid[1, number_of("constant", "root", "none")]
    assert not features.has_missing.any()


@pytest.mark.parametrize("filling", ["constant", "indicator"])
def test_an_indicator_is_a_feature_of_its_own_where_numbers_are_missing(filling: str) -> None:
    rows = sampled(x=drawn(1), full=[float(x) for x in range(ROWS)])
    features = ColumnFeatures(rows)
    described = features.described([number_of(filling, "none", "none")] * 2)
    assert [column.name for column in described] == ["x", "full"] + ["x_is_missing"] * (filling == "indicator")
    if filling == "indicator":
        missing = np.array([x is None for x in rows.numbers[0].to_pylist()], np.float32)
        assert features.matrix(described)[:, 2].tolist() == missing.tolist()
