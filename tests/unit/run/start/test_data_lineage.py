"""Which training rows may follow those that a checkpoint was trained on, and from which step their epochs count."""

from dataclasses import replace
from pathlib import Path

import pytest

from bagpipe_hpc.run.start.data_lineage import Lineage, data_step, lineage
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoints.manifest import CheckpointManifest
from bagpipe_hpc.storage.shards.entries import ShardInfo, TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from tests.unit.checkpoint_samples import sample_records, write_checkpoint

FIRST, LATER, GROWN = (letter * 64 for letter in "abc")


def day(sha256: str, vocabulary: str | None, grown_from: str | None = None) -> ShardManifest:
    """A day's rows, with the digest of their vocabularies and of those that these have grown out of."""
    shards = (ShardInfo("train-00000.h5", 2560, 7, 1, sha256),)
    vocabularies = FileInfo("vocabularies.h5", 1, vocabulary) if vocabulary else None
    tables = (TableInfo("C1", 5), TableInfo("C2", 3))
    return ShardManifest(1, "criteo", 3, tables, shards, (), vocabularies=vocabularies, grown_from=grown_from)


@pytest.fixture
def then(tmp_path: Path) -> CheckpointManifest:
    """Step 100 on the rows of the first day."""
    facts = {"training_data": day("0" * 64, FIRST).digest("train"), "vocabularies": FIRST}
    return load_checkpoint(write_checkpoint(tmp_path, sample_records((5, 3), 5), (5, 3), **facts)).manifest


@pytest.mark.parametrize(
    ("now", "found"),
    [
        (day("0" * 64, FIRST), Lineage.SAME),
        (day("0" * 64, None), Lineage.SAME),
        (day("0" * 64, GROWN, FIRST), Lineage.SAME),
        (day("0" * 64, GROWN), Lineage.OTHER),
        (day("1" * 64, FIRST), Lineage.LATER),
        (day("1" * 64, GROWN, FIRST), Lineage.GROWN),
        (day("1" * 64, GROWN, LATER), Lineage.OTHER),
        (day("1" * 64, GROWN), Lineage.OTHER),
        (day("1" * 64, None), Lineage.OTHER),
    ],
)
def test_rows_follow_where_their_vocabulary_is_that_of_the_checkpoint_or_has_grown_from_it(
    then: CheckpointManifest, now: ShardManifest, found: Lineage
) -> None:
    assert lineage(then, now) is found
    assert data_step(then, now) == (0 if found is Lineage.SAME else 100)


def test_without_a_vocabulary_on_record_only_the_same_rows_go_on(then: CheckpointManifest) -> None:
    old = replace(then, vocabularies=None)
    assert lineage(old, day("0" * 64, FIRST)) is Lineage.SAME
    assert lineage(old, day("1" * 64, FIRST)) is Lineage.OTHER
    assert lineage(old, day("1" * 64, None)) is Lineage.OTHER


def test_epochs_of_later_rows_count_from_where_these_began(then: CheckpointManifest) -> None:
    later = replace(then, data_step=60, epoch=0, epoch_step=40)
    assert data_step(later, day("0" * 64, FIRST)) == 60
    assert data_step(later, day("1" * 64, FIRST)) == 100
    assert data_step(None, day("0" * 64, FIRST)) == 0
