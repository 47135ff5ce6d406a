"""Runs with the policy `fae` end in the bits of the reference that replays their order."""

from pathlib import Path

import pytest

from bagpipe_hpc.tools.compare import compare
from tests.end_to_end.test_equality import RunRanks, train

SHARES = {"sgd": 100, "rowwise_adagrad": 50, "adam": 30}
"""Per cent of a part, by the rows' optimizer."""


def settings_of(optimizer: str, profile: Path, *more: str) -> list[str]:
    """Half of the samples are hot; those of each kind come from lanes in some runs."""
    fae = ["policy.name=fae", "policy.hot_rows=2500", "policy.sample_percent=100", f"policy.profile={profile}"]
    share = f"policy.share_percent={SHARES[optimizer]}"
    if optimizer == "adam":
        more = (*more, "data.lanes=4", "data.block_rows=50")
    return [*fae, share, f"optimizer.rows={optimizer}", "train.checkpoint_every_steps=6", *more]


@pytest.mark.slow
def test_fae_equals_the_reference_of_its_order(short_config: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """With one trainer and with two. That a run which goes on is in the same order: `test_policy_faults.py`."""
    profile = tmp_path / "hot.h5"

    def runs(kinds: list[tuple[str, int]], name: str) -> dict[tuple[str, int], Path]:
        return {kind: tmp_path / f"{name} {kind[0]} {kind[1]}" for kind in kinds}

    def train_all(
        ranks: int, outputs: dict[tuple[str, int], Path], *more: str, others: tuple[list[str], ...] = ()
    ) -> None:
        given = [
            settings_of(optimizer, profile, f"train.output={output}", *more)
            + ([f"train.reference_slices={trainers}"] if ranks == 1 else [])
            for (optimizer, trainers), output in outputs.items()
        ]
        train(run_ranks, ranks, short_config, [*given, *others], tmp_path)

    two = [(optimizer, 2) for optimizer in SHARES]
    references, found = runs([*two, ("sgd", 1)], "reference"), runs(two, "run")
    plain = ["optimizer.rows=sgd", "train.reference_slices=2", f"train.output={tmp_path / 'bagpipe'}"]
    train_all(1, references, others=(plain,))
    one = runs([("sgd", 1)], "run")
    train_all(3, one, "roles.servers=1", "debug.verify_rows=true")
    train_all(5, found, "roles.servers=2", "debug.verify_rows=true")
    for kind, output in (one | found).items():
        assert compare(references[kind], output).largest() == 0.0, kind
    assert compare(found["sgd", 2], tmp_path / "bagpipe").largest() > 1e-3  # another order trains otherwise
