"""Dense features are filled, clipped, reshaped and scaled as NumPy does it, and by the training rows alone."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bagpipe_hpc.errors import ConfigError, DataError
from bagpipe_hpc.storage.shards.reader import ClickShards
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.schema.columns import CategoricalColumn, LabelColumn, NumericColumn
from data_prep.schema.document import FileRules, Schema, to_document
from data_prep.schema.format import SchemaFormat
from data_prep.schema.numbers import filled, fit_numbers, parsed, refined

COLUMNS: dict[str, dict[str, Any]] = {
    "plain": {"fill": "mean"},
    "middle": {"fill": "median", "standardise": True},
    "rooted": {"root": True, "scale": "robust"},
    "spans": {"missing": 2, "scale": "min_max"},
    "cut": {"quantiles": 4},
    "all": {"fill": "mean", "clip": (-1.0, 4.0), "log": True, "scale": "min_max"},
    "bins": {"fill": "median", "quantiles": 3, "standardise": True},
    "bare": {"root": True},
    "absent": {"is_missing": True},
}
TRAIN = 45


def by_numpy(name: str, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the column makes of all rows, NaN where they are missing, by its definition."""
    keys = COLUMNS[name]
    if "is_missing" in keys:
        return np.isnan(numbers).astype(float)
    present = np.sort(numbers[:TRAIN][~np.isnan(numbers[:TRAIN])])
    fill = {"mean": present.mean(), "median": present[len(present) // 2]}.get(keys.get("fill"), keys.get("missing"))
    if fill is not None:
        numbers = np.where(np.isnan(numbers), fill, numbers)
    if "clip" in keys:
        numbers = np.clip(numbers, *keys["clip"])
    if "log" in keys:
        numbers = np.log1p(np.maximum(numbers, 0))
    if "root" in keys:
        numbers = np.sign(numbers) * np.sqrt(np.abs(numbers))
    there = ~np.isnan(numbers)
    present = np.sort(numbers[:TRAIN][there[:TRAIN]])
    if "quantiles" in keys:
        cuts = [present[k * len(present) // keys["quantiles"]] for k in range(1, keys["quantiles"])]
        numbers = np.where(there, np.searchsorted(np.unique(cuts), numbers, side="right"), np.nan)
        present = np.sort(numbers[:TRAIN][there[:TRAIN]])
    if "standardise" in keys:
        numbers = (numbers - present.mean()) / present.std()
    if keys.get("scale") == "min_max":
        numbers = (numbers - present[0]) / (present[-1] - present[0])
    if keys.get("scale") == "robust":
        lower, middle, upper = (present[int(share * len(present))] for share in (0.25, 0.5, 0.75))
        numbers = (numbers - middle) / (upper - lower)
    return np.where(there, numbers, 0.0)


def test_prepared_features_are_those_of_their_definitions(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = np.round(rng.normal(1, 4, (60, len(COLUMNS))), 3)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    lines = [",".join(["click", "item", *COLUMNS])]
    lines += [",".join([str(rng.integers(2)), "a", *("" if math.isnan(x) else str(x) for x in row)]) for row in rows]
    (tmp_path / "clicks.csv").write_text("\n".join(lines) + "\n")
    numeric = [NumericColumn(name=name, **keys) for name, keys in COLUMNS.items()]
    schema = Schema(FileRules(), (LabelColumn(name="click"), CategoricalColumn(name="item"), *numeric))
    settings = PrepareSettings("schema", schema=to_document(schema), min_count=1, test_fraction=0.25)
    manifest = prepare_clicks([str(tmp_path / "clicks.csv")], tmp_path / "out", settings, lambda _: None)
    prepared = []
    for split in ("train", "test"):
        with ClickShards(tmp_path / "out", manifest, split) as shards:
            prepared.append(shards.read_dense(0, shards.rows))
    dense = np.concatenate(prepared)
    assert manifest.rows("train") == TRAIN
    for place, name in enumerate(COLUMNS):
        np.testing.assert_allclose(dense[:, place], by_numpy(name, rows[:, place]), rtol=1e-5, atol=1e-6, err_msg=name)


NUMBERS = st.lists(st.none() | st.floats(-1e6, 1e6), max_size=30)


@given(NUMBERS, st.integers(1, 20), st.sampled_from([name for name in COLUMNS if name not in ("absent", "bare")]))
def test_what_is_taken_depends_on_no_order_and_features_are_finite(
    numbers: list[float | None], block: int, name: str
) -> None:
    column = NumericColumn(name=name, **COLUMNS[name])
    found = []
    for values in (numbers, numbers[::-1]):
        whole = parsed(pa.array(values, pa.float64()), column)
        blocks = [whole[at : at + block] for at in range(0, len(values), block)]
        found.append(fit_numbers(column, lambda blocks=blocks: blocks))
    assert found[0] == found[1]
    assert np.isfinite(refined(whole, column, found[0])).all()


@pytest.mark.parametrize(
    ("keys", "fitted", "fault"),
    [
        ({"fill": "mean"}, {}, "has no number to fill p"),
        ({"quantiles": 3}, {"bounds": [2.0, 2.0]}, "has no ascending bounds of p"),
        ({"scale": "robust"}, {"origin": 0.0, "spread": 0.0}, "has no origin and spread of p"),
    ],
)
def test_recorded_values_that_are_none_are_refused(keys: dict[str, Any], fitted: dict[str, Any], fault: str) -> None:
    columns = (LabelColumn(name="y"), CategoricalColumn(name="c"), NumericColumn(name="p", **keys))
    schema = Schema(FileRules(), columns)
    with pytest.raises(ConfigError, match=fault):
        SchemaFormat(schema).refinement({"p": fitted})


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("keys", [{"scale": "robust"}, {"scale": "min_max"}, {"standardise": True}])
def test_a_number_that_is_infinite_once_it_is_scaled_is_refused(
    tmp_path: Path, backend: str, keys: dict[str, Any]
) -> None:
    """The last row is for tests, so that the others alone say the scale."""
    numbers = [1e-6, 2e-6, 3e-6, 4e-6, 3e38]
    lines = [f"{row % 2},a,{number!r}" for row, number in enumerate(numbers)]
    (tmp_path / "clicks.csv").write_text("click,item,price\n" + "\n".join(lines) + "\n")
    columns = (LabelColumn(name="click"), CategoricalColumn(name="item"), NumericColumn(name="price", **keys))
    settings = PrepareSettings(
        "schema",
        schema=to_document(Schema(FileRules(), columns)),
        min_count=1,
        test_fraction=0.2,
        backend=backend,
    )
    refused = r"price: 3e\+38 becomes too large for float32 by (scale|standardise) = .*give columns.price .* a clip"
    with pytest.raises(DataError, match=refused):
        prepare_clicks([str(tmp_path / "clicks.csv")], tmp_path / "out", settings, lambda _: None)
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    "keys", [{}, {"missing": -3.4e38}, {"clip": (-3.4e38, 3.4e38)}, {"clip": (0, 1e300)}, {"log": True}, {"root": True}]
)
@pytest.mark.parametrize("integer", [False, True])
def test_features_that_take_nothing_from_training_rows_are_finite(integer: bool, keys: dict[str, Any]) -> None:
    """Whatever a field may hold."""
    keys = {"missing": -(2.0**63)} if integer and "missing" in keys else keys
    numbers = [-(1 << 63), None, (1 << 63) - 1] if integer else [-3.4028235e38, None, 3.4028235e38]
    column = NumericColumn(name="p", integer=integer, **keys)
    features = filled(pa.array(numbers, pa.int64() if integer else pa.float64()), column)
    assert np.isfinite(features.astype(np.float32)).all()


def test_what_is_refused_is_called_what_it_is() -> None:
    """A root is not the number in the file, and one that is missing is none."""
    for keys, number, named in (
        ({"root": True, "scale": "robust"}, 1e19, r"p: the root 1e\+19"),
        ({"log": True, "scale": "robust"}, 80.0, r"p: the logarithm 80\.0"),
        ({"fill": "mean", "log": True, "scale": "robust"}, 1e30, r"p: 1e\+30"),
        ({"fill": "mean", "scale": "robust"}, None, "p: a missing number"),
    ):
        columns = (LabelColumn(name="y"), CategoricalColumn(name="c"), NumericColumn(name="p", **keys))
        rows = SchemaFormat(Schema(FileRules(), columns))
        refine = rows.refinement({"p": {"fill": 1e38, "origin": 0.0, "spread": 1e-60}})
        batch = pa.RecordBatch.from_arrays(
            [pa.array([value], field.type) for value, field in zip([0, [0.0], "a", number], rows.schema, strict=True)],
            schema=rows.schema,
        )
        with pytest.raises(DataError, match=f"{named} becomes too large for float32 by scale = 'robust'"):
            refine(batch)
