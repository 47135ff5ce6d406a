"""What is looked up of a graph: the settings and the data must agree, or it is said why not."""

from dataclasses import replace
from pathlib import Path

import pytest

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config, DataConfig, FeaturesConfig, GraphConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.run.graph_features import with_neighbours
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from tests.graphs import write_graph_data
from tests.ragged_shards import write_ragged


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("graphs") / "data"
    write_graph_data(found, 60, rows_per_shard=20)
    return found


def test_hops_are_features_of_the_table_of_nodes(folder: Path) -> None:
    stored = load_manifest(folder)
    found = with_neighbours(stored, GraphConfig((4, 3)))
    assert [(one.name, one.table, one.ragged, one.longest) for one in found.features] == [
        ("node", "node", False, 1),
        ("hop1", "node", True, 4),
        ("hop2", "node", True, 12),
    ]
    assert found.mean_look_ups == (17.0,)
    assert found.digest("train") == stored.digest("train")
    assert replace(found.stored(), schema_version=stored.schema_version) == stored


def test_a_graph_needs_fan_outs_and_other_data_has_no_use_for_them(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"graph\.fan_outs = \[\]: data\.path has a graph; say how many neighbours"):
        with_neighbours(load_manifest(folder), GraphConfig())
    clicks: ShardManifest = write_ragged(tmp_path / "clicks")
    with pytest.raises(ConfigError, match=r"graph\.fan_outs = \[3\]: data\.path has no graph; leave it out"):
        with_neighbours(clicks, GraphConfig((3,)))
    assert with_neighbours(clicks, GraphConfig()) is clicks


@pytest.mark.parametrize("features", [FeaturesConfig(longest=2), FeaturesConfig(longest_of={"hop1": 2})])
def test_nodes_of_a_hop_are_not_cut_off(folder: Path, features: FeaturesConfig) -> None:
    config = Config(data=DataConfig(path=str(folder)), features=features, graph=GraphConfig((3,)))
    config = replace(config, train=replace(config.train, batch_size=9))
    with pytest.raises(ConfigError, match=r"2 nodes of hop1 are asked for, and graph\.fan_outs alone says"):
        _ = prepare_run(config).model_facts


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("[0]", r"graph\.fan_outs = \[0\]: use 1 to 4 hops of 1 neighbour or more each"),
        ("[3,-1]", r"graph\.fan_outs = \[3, -1\]: use 1 to 4 hops"),
        ("[2,2,2,2,2]", "use 1 to 4 hops"),
        ("[300,300]", "a sample has 90000 nodes at its last hop; use fewer, 65536 at most"),
        ("3", r"graph\.fan_outs"),
    ],
)
def test_fan_outs_that_cannot_be(tmp_path: Path, value: str, said: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text("")
    with pytest.raises(ConfigError, match=said):
        load_config(path, [f"graph.fan_outs={value}"])
