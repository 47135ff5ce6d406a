"""A run goes on with the data of its checkpoint, or with later rows, in the same order; all else is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from bagpipe_hpc.config.file import to_document
from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.preparation.resume import find_start
from bagpipe_hpc.run.sample_orders import SampleOrders
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.shards.entries import TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from tests.unit.checkpoint_samples import sample_records, write_checkpoint
from tests.unit.resumed_runs import SHARDS, TABLES, settings
from tests.unit.run.start.settings_of_runs import changed, config_at


def test_lanes_that_the_data_decide_are_those_that_were_asked_for(output: Path) -> None:
    """The few rows here have room for one lane; another order has blocks that begin anew in each shard, or two."""
    for lanes in (0, 1):
        directory = output / f"lanes-{lanes}"
        config = changed(config_at(settings(output), directory), "data.lanes", lanes)
        write_checkpoint(
            directory,
            sample_records(TABLES, 5),
            TABLES,
            training_data=SHARDS.digest("train"),
            config=to_document(config),
        )
        assert find_start(changed(config, "data.lanes", 1 - lanes), SHARDS) is not None
        blocks = changed(config, "data.block_rows", 1)
        with pytest.raises(CheckpointError, match=r"data\.lanes"):
            find_start(changed(blocks, "data.lanes", 1 - lanes), SHARDS)
        with pytest.raises(CheckpointError, match=r"data\.lanes"):
            find_start(changed(config, "data.lanes", 2), SHARDS)


def test_lanes_that_the_data_decide_are_as_many_as_were_asked_for(output: Path) -> None:
    automatic = changed(changed(settings(output), "data.block_rows", 1), "data.lanes", 0)
    decided = SampleOrders(automatic, SHARDS).lanes
    assert decided > 2
    for lanes in (decided, decided - 1):
        directory = output / f"lanes-{lanes}"
        write_checkpoint(
            directory,
            sample_records(TABLES, 5),
            TABLES,
            training_data=SHARDS.digest("train"),
            config=to_document(changed(automatic, "data.lanes", lanes)),
        )
        if lanes == decided:
            assert find_start(config_at(automatic, directory), SHARDS) is not None
            continue
        with pytest.raises(CheckpointError, match=r"data\.lanes"):
            find_start(config_at(automatic, directory), SHARDS)


def test_without_shuffling_the_size_of_the_blocks_is_free(output: Path) -> None:
    config = changed(settings(output), "data.shuffle", False)
    write_checkpoint(
        output / "other",
        sample_records(TABLES, 5),
        TABLES,
        training_data=SHARDS.digest("train"),
        config=to_document(config),
    )
    resumed = changed(config_at(config, output / "other"), "data.block_rows", 100)
    assert find_start(changed(resumed, "data.lanes", 4), SHARDS) is not None


@pytest.mark.parametrize(
    ("shards", "what"),
    [
        (replace(SHARDS, train=(replace(SHARDS.train[0], rows=2559),)), "training samples: 2560 then, 2559 now"),
        (
            replace(SHARDS, tables=(*SHARDS.tables, TableInfo("C3", 4)), features=()),
            r"rows of the tables: \[5, 3\] then, \[5, 3, 4\] now",
        ),
        (replace(SHARDS, train=(replace(SHARDS.train[0], sha256="1" * 64),)), "digest of the training shards"),
        (
            replace(SHARDS, train=tuple(replace(SHARDS.train[0], file=f"{n}.h5", rows=n) for n in (2000, 560))),
            "digest of the training shards",
        ),
    ],
)
def test_other_data_is_refused(output: Path, shards: ShardManifest, what: str) -> None:
    with pytest.raises(CheckpointError, match=rf"is of another training: data\.path, .*{what}"):
        find_start(settings(output), shards)


def test_the_same_ids_of_other_values_are_refused(output: Path) -> None:
    """Rows whose values were named anew have the same shards, and other vocabularies."""
    rows = SHARDS.digest("train")
    write_checkpoint(output / "o", sample_records(TABLES, 5), TABLES, training_data=rows, vocabularies="1" * 64)
    told = r"data\.path, digest of the vocabularies: '1{64}' then, '2{64}' now"
    with pytest.raises(CheckpointError, match=told):
        find_start(settings(output / "o"), replace(SHARDS, vocabularies=FileInfo("vocabularies.h5", 1, "2" * 64)))


def test_later_rows_have_tables_of_the_same_size(output: Path) -> None:
    """Where all values are hashed, any two preparations have the same vocabularies: none."""
    hashed = replace(SHARDS, vocabularies=FileInfo("vocabularies.h5", 1, "2" * 64))
    later = replace(hashed, train=(replace(SHARDS.train[0], sha256="1" * 64),))
    write_checkpoint(
        output / "o",
        sample_records(TABLES, 5),
        TABLES,
        training_data=SHARDS.digest("train"),
        vocabularies="2" * 64,
        config=to_document(settings(output)),
    )
    assert find_start(settings(output / "o"), later) is not None
    larger = replace(later, tables=(replace(SHARDS.tables[0], rows=6), *SHARDS.tables[1:]))
    with pytest.raises(CheckpointError, match=r"rows of the tables: \[5, 3\] then, \[6, 3\] now"):
        find_start(settings(output / "o"), larger)


def test_tables_that_have_grown_are_those_of_the_same_names(output: Path) -> None:
    """They may have other numbers of rows, and no table comes or goes."""
    grown = replace(
        SHARDS,
        train=(replace(SHARDS.train[0], sha256="1" * 64),),
        vocabularies=FileInfo("vocabularies.h5", 1, "2" * 64),
        grown_from="3" * 64,
        tables=(replace(SHARDS.tables[0], rows=6), *SHARDS.tables[1:]),
    )
    write_checkpoint(
        output / "o",
        sample_records(TABLES, 5),
        TABLES,
        training_data=SHARDS.digest("train"),
        vocabularies="3" * 64,
        config=to_document(settings(output)),
    )
    assert find_start(settings(output / "o"), grown) is not None
    other_names = tuple(TableInfo(name, table.rows) for name, table in zip(("C1", "C9"), grown.tables, strict=True))
    renamed = replace(grown, tables=other_names, features=())  # a feature a table, as where none is recorded
    with pytest.raises(CheckpointError, match=r"data\.path, tables: \['C1', 'C2'\] then, \['C1', 'C9'\] now"):
        find_start(settings(output / "o"), renamed)
