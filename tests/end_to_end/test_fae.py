"""Runs with the policy `fae` end in the bits of the reference that replays their order, also when they are resumed."""

from pathlib import Path

import pytest

from bagpipe_hpc.tools.compare import compare
from tests.end_to_end.test_equality import RunRanks, train
from tests.end_to_end.test_resume import interrupted

SHARES = {"sgd": 100, "rowwise_adagrad": 50, "adam": 30}
"""Per cent of a part, by the rows' optimizer."""
EVERY, RESUMED_AT = 6, 18


def settings_of(optimizer: str, profile: Path, *more: str) -> list[str]:
    """Half of the samples are hot; those of each kind come from lanes in some runs."""
    fae = ["policy.name=fae", "policy.hot_rows=2500", "policy.sample_percent=100", f"policy.profile={profile}"]
    share = f"policy.share_percent={SHARES[optimizer]}"
    if optimizer == "adam":
        more = (*more, "data.lanes=4", "data.block_rows=50")
    return [*fae, share, f"optimizer.rows={optimizer}", f"train.checkpoint_every_steps={EVERY}", *more]


@pytest.mark.slow
def test_fae_equals_the_reference_of_its_order(short_config: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """With one trainer and with two; a run that goes on from the second epoch is in the same order."""
    profile = tmp_path / "hot.h5"

    def runs(kinds: list[tuple[str, int]], name: str) -> dict[tuple[str, int], Path]:
        return {kind: tmp_path / f"{name} {kind[0]} {kind[1]}" for kind in kinds}

    def train_all(ranks: int, outputs: dict[tuple[str, int], Path], *more: str) -> None:
        given = [
            settings_of(optimizer, profile, f"train.output={output}", *more)
            + ([f"train.reference_slices={trainers}"] if ranks == 1 else [])
            for (optimizer, trainers), output in outputs.items()
        ]
        train(run_ranks, ranks, short_config, given, tmp_path)

    two = [(optimizer, 2) for optimizer in SHARES]
    references, found = runs([*two, ("sgd", 1)], "reference"), runs(two, "run")
    train_all(1, references)
    one = runs([("sgd", 1)], "run")
    train_all(3, one, "roles.servers=1", "debug.verify_rows=true")
    train_all(5, found, "roles.servers=2", "debug.verify_rows=true")
    for kind, output in (one | found).items():
        assert compare(references[kind], output).largest() == 0.0, kind

    resumed = {("adam", 2): interrupted(found["adam", 2], tmp_path / "resumed", RESUMED_AT)}
    plain = {("sgd", 2): tmp_path / "bagpipe"}
    given = [
        settings_of("adam", profile, f"train.output={resumed['adam', 2]}", "train.resume=auto"),
        ["optimizer.rows=sgd", f"train.output={plain['sgd', 2]}"],
    ]
    train(run_ranks, 5, short_config, [[*one, "roles.servers=2"] for one in given], tmp_path)
    assert compare(found["adam", 2], resumed["adam", 2]).largest() == 0.0
    assert compare(found["sgd", 2], plain["sgd", 2]).largest() > 1e-3  # another order trains otherwise
