"""Whether the rows that a run trains on follow those that a checkpoint was trained on. Pure.

Rows of a later day come with the vocabulary of earlier ones (`bagpipe prepare --like`), or with one that has grown out
of it (`--grow`): ids keep their meaning, so training goes on with them.
"""

from enum import Enum
from typing import Protocol

from bagpipe_hpc.storage.checkpoints.manifest import CheckpointManifest
from bagpipe_hpc.storage.shards.manifest import ShardManifest


class Trained(Protocol):
    """What a checkpoint or an exported model says of the data that it was trained on."""

    @property
    def training_data(self) -> str:
        """Digest of the training shards."""

    @property
    def vocabularies(self) -> str | None:
        """Digest of their vocabularies; None where that is not recorded."""


class Lineage(Enum):
    """What training rows are to those that a checkpoint was trained on."""

    SAME = "the same rows"
    """An epoch that was begun goes on."""
    LATER = "later rows with the same vocabulary"
    """Epochs begin anew; ids mean what they meant."""
    GROWN = "later rows with a vocabulary that has grown"
    """As well, and tables have new rows, or rows that were given to other values."""
    OTHER = "other rows"
    """Ids may mean anything."""


def lineage(then: Trained, now: ShardManifest) -> Lineage:
    """What the training rows of a run are to those of a trained model.

    Args:
        then: of the model.
        now: of the run's data.
    """
    has_same_ids = then.training_data == now.digest("train")
    if then.vocabularies is None or now.vocabularies is None:
        return Lineage.SAME if has_same_ids else Lineage.OTHER
    if then.vocabularies == now.vocabularies.sha256:
        return Lineage.SAME if has_same_ids else Lineage.LATER
    if then.vocabularies == now.grown_from:
        return Lineage.SAME if has_same_ids else Lineage.GROWN
    return Lineage.OTHER  # the same ids, too, may stand for other values


def data_step(then: CheckpointManifest | None, now: ShardManifest) -> int:
    """Training steps before the first epoch of a run's rows: those on earlier rows.

    Args:
        then: of the checkpoint that the run goes on from; None where it begins.
        now: of the run's data.
    """
    if then is None:
        return 0
    return then.data_step if lineage(then, now) is Lineage.SAME else then.step
