"""What a row optimizer says of its state reaches records and new rows; what breaks the contract is refused by name."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bagpipe_hpc.config.file import load_config, to_toml
from bagpipe_hpc.config.schema import Config, ModelConfig, OptimizerConfig, TablesConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.rows.optimizers.build import build_row_optimizer
from bagpipe_hpc.rows.optimizers.contract import RowOptimizer, StateColumns
from bagpipe_hpc.rows.optimizers.sgd import SGD
from bagpipe_hpc.rows.partition import RoundRobinPartition
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.run.start import first_records
from bagpipe_hpc.run.start.first_records import fill_partition
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.shards.entries import ShardInfo, TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from tests.row_optimizers import BUILT_IN
from tests.unit.checkpoint_samples import sample_tables, write_tables

ROOT = Path(__file__).parents[3]


class Added(RowOptimizer):
    """State of both kinds; its formula is of no importance."""

    state = (StateColumns("mean", per_weight=True, first=1.5), StateColumns("count", per_weight=False, first=-2.0))

    def update(self, *_: object) -> None: ...


class NoFormula(RowOptimizer):
    pass


class Fails(Added):
    @property
    def state(self) -> tuple[StateColumns, ...]:  # type: ignore[override]
        return self.settings.columns


class NotOne:
    pass


def added_config(**changes: object) -> Config:
    return Config(model=ModelConfig(embedding_dim=3), optimizer=OptimizerConfig(rows=f"{__name__}:Added", **changes))


def test_a_record_holds_the_state_in_its_order() -> None:
    record = RowRecord.of(added_config())
    assert (record.state_widths, record.saved_width, record.first_state) == ((3, 1), 7, (1.5, 1.5, 1.5, -2.0))


@pytest.mark.parametrize("verify", [False, True])
def test_new_rows_begin_with_the_first_values(verify: bool) -> None:
    """Behind the weights, before the version; on every server."""
    config = added_config()
    object.__setattr__(config.debug, "verify_rows", verify)
    shard = ShardInfo("train-00000.h5", 9, 1, 1, "0" * 64)
    manifest = ShardManifest(1, "criteo", 1, (TableInfo("C1", 5), TableInfo("C2", 4)), (shard,), ())
    run, partition = Run(config, manifest, ()), RoundRobinPartition(9, 2)
    (group,) = run.groups
    for server in range(2):
        records = np.full((partition.rows_on(server), group.record.width), np.nan, dtype=np.float32)
        fill_partition(records, run, group, partition, server)
        assert (records[:, :3] != 0).all()
        expected = [1.5, 1.5, 1.5, -2.0, *([0.0] if verify else [])]
        np.testing.assert_array_equal(records[:, 3:], [expected] * len(records))


def test_new_rows_go_by_the_seed_and_not_by_their_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor by how many are written at a time."""
    manifest = ShardManifest(1, "criteo", 1, (TableInfo("C1", 5), TableInfo("C2", 4)), (), ())

    def rows(seed: int, servers: int) -> np.ndarray:
        config = added_config()
        run = Run(replace(config, train=replace(config.train, seed=seed)), manifest, ())
        (group,), partition = run.groups, RoundRobinPartition(9, servers)
        found = np.full((9, group.record.width), np.nan, dtype=np.float32)
        for server in range(servers):
            records = np.empty((partition.rows_on(server), group.record.width), dtype=np.float32)
            fill_partition(records, run, group, partition, server)
            found[partition.rows_of(server, 0, len(records))] = records
        return found

    expected = rows(7, 1)
    monkeypatch.setattr(first_records, "_FILL_WEIGHTS", 1)
    np.testing.assert_array_equal(rows(7, 2), expected)
    assert (rows(8, 1)[:, :3] != expected[:, :3]).all()


def test_what_a_checkpoint_has_of_grown_tables_is_laid_over_new_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own numbers are not those of the rows, so it is not read as a whole."""

    def lay_over(_tables: object, _partition: object, server: int, records: np.ndarray, _shards: object) -> None:
        assert (server, records.shape) == (1, (4, 7))
        assert np.isfinite(records).all()
        records[2] = 9.0

    monkeypatch.setattr(Run, "origins", SimpleNamespace(lay_over=lay_over))
    manifest = ShardManifest(1, "criteo", 1, (TableInfo("C1", 5), TableInfo("C2", 4)), (), ())
    run = Run(added_config(), manifest, (), start=SimpleNamespace())  # type: ignore[arg-type]
    (group,) = run.groups
    records = np.full((4, group.record.width), np.nan, dtype=np.float32)
    fill_partition(records, run, group, RoundRobinPartition(9, 2), 1)
    assert (records[2, :7] == 9.0).all()
    assert (records[[0, 1, 3], 3:7] == [1.5, 1.5, 1.5, -2.0]).all()


def test_rows_of_a_checkpoint_come_to_the_servers_of_now(tmp_path: Path) -> None:
    """Of tables of two widths, from another number of servers; behind them are versions, which begin at 0."""
    config = added_config()
    object.__setattr__(config.debug, "verify_rows", True)
    object.__setattr__(config.model, "embedding_dim_of", {"C2": 2})
    tables = sample_tables((5, 4), (3, 2))
    checkpoint = load_checkpoint(write_tables(tmp_path, tables, servers=3))
    shard = ShardInfo("train-00000.h5", 9, 1, 1, "0" * 64)
    manifest = ShardManifest(1, "criteo", 1, (TableInfo("C1", 5), TableInfo("C2", 4)), (shard,), ())
    run = Run(config, manifest, (), checkpoint)
    for table, group in zip(tables, run.groups, strict=True):
        partition = RoundRobinPartition(len(table), 2)
        for server in range(2):
            records = np.full((partition.rows_on(server), group.record.width), np.nan, dtype=np.float32)
            fill_partition(records, run, group, partition, server)
            expected = table[partition.rows_of(server, 0, len(records))]
            np.testing.assert_array_equal(records, np.pad(expected, ((0, 0), (0, 1))))


@pytest.mark.parametrize(
    ("config", "bound"),
    [
        (Config(), 1 / np.sqrt(50)),
        (Config(tables=TablesConfig(initial_bound=0.01)), 0.01),
        (Config(model=ModelConfig(name="deepfm")), 0.001),
        (Config(model=ModelConfig(name="wide_deep")), 0.001),
        (Config(model=ModelConfig(name="deepfm"), tables=TablesConfig(initial_bound=0.5)), 0.5),
    ],
)
def test_new_rows_keep_within_their_bound(config: Config, bound: float) -> None:
    """That of the setting, else of the model, else of the table."""
    shard = ShardInfo("train-00000.h5", 9, 1, 1, "0" * 64)
    manifest = ShardManifest(1, "criteo", 1, (TableInfo("C1", 50),), (shard,), ())
    run, partition = Run(config, manifest, ()), RoundRobinPartition(50, 1)
    (group,) = run.groups
    records = np.empty((50, group.record.width), dtype=np.float32)
    fill_partition(records, run, group, partition, 0)
    assert 0.95 * bound < np.abs(records[:, :16]).max() <= np.float32(bound)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("sum", "its state = 'sum': must be a tuple of StateColumns"),
        (("sum",), "its state = ('sum',): must be a tuple of StateColumns"),
        (5, "its state = 5: must be a tuple of StateColumns"),
        ((StateColumns("", True),), "its state has the name ''"),
        ((StateColumns("a b", True),), "its state has the name 'a b'"),
        ((StateColumns("sum", 1),), "its state sum has per_weight = 1: use True or False"),
        (
            (StateColumns("sum", True, float("nan")),),
            "its state sum has first = nan: use a number that float32 can hold",
        ),
        ((StateColumns("sum", True, 1e39),), "its state sum has first = 1e"),
        ((StateColumns("sum", True, "0"),), "its state sum has first = '0'"),
        ((StateColumns("sum", True), StateColumns("sum", False)), "its state has the name sum twice"),
    ],
)
def test_a_state_of_unknown_kind_is_refused(monkeypatch: pytest.MonkeyPatch, state: object, said: str) -> None:
    monkeypatch.setattr(Added, "state", state)
    with pytest.raises(ConfigError) as raised:
        RowRecord.of(added_config())
    assert f"optimizer.rows = '{__name__}:Added': {said}" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NotOne", "must be a subclass of .*RowOptimizer"),
        ("NoFormula", "must define update"),
        ("Fails", "cannot be made: AttributeError: .* no attribute 'columns'"),
    ],
)
def test_what_is_no_row_optimizer_is_refused(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build_row_optimizer(OptimizerConfig(rows=f"{__name__}:{name}"))


@pytest.mark.parametrize(
    ("rows", "key", "has"),
    [
        ("sgd", "rows_betas=[0.9, 0.9]", "optimizer.rows has optimizer.rows_lr"),
        ("sgd", "rows_eps=1e-3", "optimizer.rows has optimizer.rows_lr"),
        ("rowwise_adagrad", "rows_betas=[0.9, 0.9]", "has optimizer.rows_lr, optimizer.rows_eps"),
        (f"{__name__}:Added", "rows_lr=0.1", "what optimizer.rows names has no settings"),
    ],
)
def test_settings_that_an_optimizer_has_not_are_refused(tmp_path: Path, rows: str, key: str, has: str) -> None:
    (tmp_path / "run.toml").write_text("")
    with pytest.raises(ConfigError, match=r"no such setting") as raised:
        load_config(tmp_path / "run.toml", [f"optimizer.rows={rows}", f"optimizer.{key}"])
    assert "what optimizer.rows names has" in str(raised.value)
    assert has.removeprefix("optimizer.rows ") in str(raised.value)


@pytest.mark.parametrize("rows", BUILT_IN)
def test_settings_are_written_and_read_under_their_names(tmp_path: Path, rows: str) -> None:
    (tmp_path / "run.toml").write_text(f'[optimizer]\nrows = "{rows}"\nrows_lr = 0.25\n')
    config = load_config(tmp_path / "run.toml")
    assert build_row_optimizer(config.optimizer).settings.lr == 0.25
    (tmp_path / "again.toml").write_text(to_toml(config))
    assert load_config(tmp_path / "again.toml") == config


def test_records_of_every_optimizer_do_without_torch() -> None:
    """As oracle and servers do."""
    program = f"""
import sys
from bagpipe_hpc.config.schema import Config, OptimizerConfig
from bagpipe_hpc.rows.record import RowRecord
widths = [RowRecord.of(Config(optimizer=OptimizerConfig(rows=name))).saved_width for name in {BUILT_IN!r}]
assert widths == [16, 32, 17, 32, 48, 33, 48], widths
sys.exit(", ".join({{"torch", "mpi4py", "numpy", "h5py"}} & set(sys.modules)) or 0)
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_what_an_earlier_version_recorded_is_read(tmp_path: Path) -> None:
    """It wrote the settings of all row optimizers; those of others pass where they have their defaults."""
    path = tmp_path / "run.toml"
    path.write_text('[optimizer]\nrows = "sgd"\nrows_lr = 0.5\nrows_eps = 1e-8\nrows_betas = [0.9, 0.999]')
    assert load_config(path).optimizer == OptimizerConfig("sgd", SGD.Settings(0.5))
    path.write_text('[optimizer]\nrows = "sgd"\nrows_betas = [0.9, 0.9]')
    with pytest.raises(
        ConfigError, match=r"rows_betas = .*: no such setting.*; leave it out, it is for adam, rowwise_adam"
    ):
        load_config(path)
    path.write_text('[optimizer]\nrows = "sgd"')
    with pytest.raises(
        ConfigError, match=r"no such setting.*; leave it out, it is for rowwise_adagrad, adagrad, adam, rowwise_adam"
    ):
        load_config(path, ["optimizer.rows_eps=1e-8"])
