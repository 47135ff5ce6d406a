"""A block of the input without a good row, between others that have some, changes no shard."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from bagpipe_hpc.storage.shards.manifest import ShardManifest
from data_prep.backend import choose_backend
from data_prep.formats.criteo import Criteo
from data_prep.formats.layout import IdRule
from data_prep.inputs.text_blocks import BLOCK_BYTES
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.sample_encoder import SampleEncoder
from data_prep.schema.document import schema_of, to_document
from data_prep.schema.format import SchemaFormat
from tests.click_rows import random_rows

GOOD = "\n".join(random_rows(40, seed=3)).encode() + b"\n"
EMPTY_LINES = b"\n" * (5 * BLOCK_BYTES // 2)
BAD_LINE = b"x" * 999 + b"\n"
BAD_LINES = BAD_LINE * (5 * BLOCK_BYTES // 2 // len(BAD_LINE))
SCHEMA = schema_of(
    {
        "columns": [
            {"name": "click", "kind": "label"},
            {"name": "price", "kind": "numeric", "standardise": True},
            {"name": "item", "kind": "categorical"},
        ]
    },
    "a test",
)


def prepared(source: Path, backend: str, **others: object) -> ShardManifest:
    settings = PrepareSettings(min_count=1, test_fraction=0.0, backend=backend, skip_bad_rows=10_000, **others)  # type: ignore[arg-type]
    return prepare_clicks([str(source)], source.with_suffix(f".{backend}"), settings, lambda _: None)


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("between", [EMPTY_LINES, BAD_LINES], ids=["empty", "bad"])
def test_blocks_of_text(tmp_path: Path, backend: str, between: bytes) -> None:
    (tmp_path / "apart").write_bytes(GOOD + between + GOOD)
    (tmp_path / "close").write_bytes(GOOD + GOOD)
    apart, close = (prepared(tmp_path / name, backend) for name in ("apart", "close"))
    assert apart.rows("train") == 80
    assert apart.digest("train") == close.digest("train")


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_a_row_group_of_parquet(tmp_path: Path, backend: str) -> None:
    """Where rows are refined, too."""
    good = pa.table({"click": [0, 1], "price": [1.0, 5.0], "item": ["a", "b"]})
    bad = pa.table({"click": [7], "price": [1.0], "item": ["a"]})
    for name, tables in (("apart", [good, bad, good]), ("close", [good, good])):
        with pa_parquet.ParquetWriter(tmp_path / name, good.schema) as file:
            for table in tables:
                file.write_table(table)
    schema = {"source_format": "schema", "schema": to_document(SCHEMA)}
    apart, close = (prepared(tmp_path / name, backend, **schema) for name in ("apart", "close"))
    assert apart.rows("train") == 4
    assert apart.digest("train") == close.digest("train")


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_a_batch_without_rows_makes_samples_without_rows(backend: str) -> None:
    """As parts that an earlier version parsed may hold them."""
    layout = (clicks := Criteo(None)).layout
    rules = [IdRule(1, None, 2)] * len(layout.tables)
    id_maps = choose_backend(backend, clicks)[0].id_maps(layout.tables, [None] * len(layout.tables), rules)
    samples = SampleEncoder(layout, id_maps, "int32").encode([clicks.parse_block(b"\n")[0]])
    assert (samples.dense.shape, samples.sparse.shape) == ((0, 13), (0, 26))
    refine = SchemaFormat(SCHEMA).refinement({"price": {"rows": 2, "mean": 3.0, "deviation": 2.0}})
    empty = pa.RecordBatch.from_pylist([], schema=SchemaFormat(SCHEMA).schema)
    assert len(refine(empty)) == 0
