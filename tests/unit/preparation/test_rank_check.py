"""What ranks say of themselves before a run is compared, and what servers need of their disks is looked at."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bagpipe_hpc.cluster.role_layout import Role, RoleLayout
from bagpipe_hpc.cluster.server_memory import Need
from bagpipe_hpc.config.schema import Config, OptimizerConfig, RolesConfig, TablesConfig
from bagpipe_hpc.errors import BagpipeError, CapacityError, ConfigError, FileError
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.preparation.rank_check import (
    check_disk,
    check_order,
    facts_of_entries,
    memory_need,
    require_same_entries,
)
from bagpipe_hpc.rows.disk.layout import BlockLayout
from bagpipe_hpc.rows.optimizers.sgd import SGD


def test_a_host_with_another_version_of_a_module_is_refused() -> None:
    """Its trainers would update rows in another way, or take one number of a row for another."""
    config = Config(optimizer=OptimizerConfig("sgd", SGD.Settings(0.5)))
    oracle = facts_of_entries(config)
    require_same_entries(config, oracle)
    for key, value in {"optimizer.rows_lr": 0.25, "optimizer.rows_decay": 1, "state of optimizer.rows": "x"}.items():
        with pytest.raises(ConfigError, match=rf"{key}: .* on host .*, .*{value}.* on the oracle's: let all hosts"):
            require_same_entries(config, {**oracle, key: value})
    del oracle["optimizer.rows_lr"]
    with pytest.raises(ConfigError, match=r"optimizer\.rows_lr: 0.5 on host .*, None on the oracle's"):
        require_same_entries(config, oracle)


def test_a_trainer_with_another_order_of_samples_is_refused() -> None:
    """It would train with the labels of some samples and the rows of others; servers read none."""
    run: Any = SimpleNamespace(
        config=Config(),
        schedule=[SimpleNamespace(is_training=False), SimpleNamespace(is_training=True)],
        sample_orders=SimpleNamespace(mark=lambda segment: 7 if segment.is_training else 0),
    )
    trainer: Any = SimpleNamespace(role=Role.TRAINER)
    server: Any = SimpleNamespace(role=Role.SERVER)
    check_order(run, 7, trainer)
    check_order(run, 8, server)
    with pytest.raises(ConfigError, match=r"policy\.name = 'bagpipe': its order\(\) gives different ranks different"):
        check_order(run, 8, trainer)


def run_on_disk(folder: Path | str, transfers: str = "messages", memory_bytes: int = 100_000) -> Any:
    """What `check_disk` asks of a run: two servers with 1,000 rows of 400 bytes each."""
    tables = TablesConfig(memory_gb=memory_bytes / 1e9, ssd_path=str(folder))
    return SimpleNamespace(
        config=Config(tables=tables, roles=RolesConfig(transfers=transfers)),
        server_bytes=lambda _: [400_000, 400_000],
        disk_layouts=lambda _servers, _server, unit: [BlockLayout.of(1000, 100, unit)],
        disk_memory=lambda _servers, _server, _unit: [memory_bytes],
    )


def server_among(hosts: tuple[int, ...]) -> Any:
    """The second server of a world of four."""
    world = SimpleNamespace(Get_rank=lambda: 2)
    comms: Any = SimpleNamespace(layout=RoleLayout(2, 1), role=Role.SERVER, role_rank=1, hosts=hosts, world=world)
    comms.servers_here = Communicators.servers_here.fget(comms)  # type: ignore[attr-defined]
    return comms


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (
            {"folder": ""},
            ConfigError,
            r"tables.memory_gb = 0.0001: 0.000 GB of rows .* set tables.ssd_path to a folder",
        ),
        ({"transfers": "one_sided"}, ConfigError, r"roles.transfers = 'one_sided': .* use roles.transfers=messages"),
        ({"folder": "/nowhere/at all"}, FileError, r"tables.ssd_path = '/nowhere/at all': is no folder on this host"),
        ({"memory_bytes": 2000}, CapacityError, r"tables.memory_gb: 0.000002 GB .* give more"),
    ],
)
def test_rows_that_cannot_lie_on_disk_refuse_the_run(
    tmp_path: Path, settings: dict[str, Any], error: type[BagpipeError], message: str
) -> None:
    with pytest.raises(error, match=message):
        check_disk(run_on_disk(**({"folder": tmp_path} | settings)), server_among((0, 0, 0, 0)))


def test_a_disk_must_hold_the_rows_of_all_servers_of_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other hosts have another; nothing is left of the look at it."""
    size = BlockLayout.of(1000, 100, 512).file_bytes
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=int(1.5 * size)))
    check_disk(run_on_disk(tmp_path), server_among((0, 0, 1, 1)))
    with pytest.raises(CapacityError, match=r"the rows of 2 servers on .* take 0.001 GB there, and 0.001 GB are free"):
        check_disk(run_on_disk(tmp_path), server_among((0, 1, 1, 1)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("hosts", "alone"), [((0, 0, 0, 0), False), ((0, 1, 1, 2), True), ((0, 2, 1, 1), False)])
def test_servers_without_a_trainer_beside_them_have_rows_of_their_own(hosts: tuple[int, ...], alone: bool) -> None:
    """`/dev/shm` need not hold them. The second server is rank 2, the trainer rank 3."""
    run: Any = SimpleNamespace(config=Config(), server_bytes=lambda _: [400, 500], is_in_memory=lambda _: True)
    assert memory_need(run, None, server_among(hosts)) == Need(
        tables_bytes=500, fullest_server_bytes=500, tables_alone=alone
    )


def test_an_oracle_without_memory_is_told_what_its_policy_has() -> None:
    """With plans that were saved it needs nothing."""
    config = Config()
    need = CacheNeed(Window(8, 2), (), planner_bytes=70)
    run: Any = SimpleNamespace(
        config=config,
        policy=lambda trainers: SimpleNamespace(smaller_state=f"its.state={trainers}"),
        sample_orders=SimpleNamespace(oracle_bytes=lambda: 5),
    )
    oracle: Any = SimpleNamespace(role=Role.ORACLE, layout=RoleLayout(1, 3))
    assert memory_need(run, need, oracle) == Need(planner_bytes=70, reading_bytes=5, smaller_planner="its.state=3")
    run.config = replace(config, train=replace(config.train, plans="saved"))
    assert memory_need(run, need, oracle) == Need()
