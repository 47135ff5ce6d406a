"""Runs with the policy `fae` end in the bits of the reference that replays their order."""

import json
from pathlib import Path

import pytest

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.run.feedback.hearing import as_replayed
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.tools.inspection.compare import compare
from bagpipe_hpc.tools.policy_comparison.traffic import measure_traffic
from tests.end_to_end.breakages import NOTHING
from tests.end_to_end.test_equality import RunRanks, train

LANES = ["data.lanes=4", "data.block_rows=50"]
ADAPTIVE = ["policy.adapt_share=true", "train.evaluate_every_steps=2"]
CASES = {
    "sgd": ["policy.share_percent=100"],
    "rowwise_adagrad": ["policy.share_percent=50"],
    "adam": ["policy.share_percent=30", *LANES],
    "sgd, adaptive": ["policy.share_percent=30", *ADAPTIVE],
    "adam, adaptive": [
        "policy.share_percent=12",
        *ADAPTIVE,
        *LANES,
        *(f"optimizer.{kind}_lr=0.001" for kind in ("rows", "dense")),
    ],
}
"""By the rows' optimizer: how large a part is, in percent, at first or always; those of a kind may come from lanes."""
DECIDED = {"sgd, adaptive": "share 30 % -> 15 %", "adam, adaptive": "share 12 % -> 24 %"}


def settings_of(case: str, profile: Path, *more: str) -> list[str]:
    """Half of the samples are hot."""
    fae = ["policy.name=fae", "policy.hot_rows=2500", "policy.sample_percent=100", f"policy.profile={profile}"]
    return [*fae, f"optimizer.rows={case.partition(',')[0]}", *CASES[case], "train.checkpoint_every_steps=6", *more]


@pytest.mark.slow
def test_fae_equals_the_reference_of_its_order(short_config: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """With one trainer and with two; the reference decides by its own evaluations, or by those of a run.

    That a run which goes on is in the same order: `test_policy_faults.py`.
    """
    profile = tmp_path / "hot.h5"

    def runs(kinds: list[tuple[str, int]], name: str) -> dict[tuple[str, int], Path]:
        return {kind: tmp_path / f"{name} {kind[0]} {kind[1]}" for kind in kinds}

    def train_all(
        ranks: int,
        outputs: dict[tuple[str, int], Path],
        *more: str,
        others: tuple[list[str], ...] = (),
        breakages: tuple[str, ...] = (),
    ) -> str:
        given = [
            settings_of(case, profile, f"train.output={output}", *more)
            + ([f"train.reference_slices={trainers}"] if ranks == 1 else [])
            for (case, trainers), output in outputs.items()
        ]
        return train(run_ranks, ranks, short_config, [*given, *others], tmp_path, *breakages)

    two, one = [(case, 2) for case in CASES], [("sgd", 1), ("sgd, adaptive", 1)]
    references, found = runs([*two, *one], "reference"), runs(two, "run")
    plain = ["optimizer.rows=sgd", "train.reference_slices=2", f"train.output={tmp_path / 'bagpipe'}"]
    said = [train_all(1, references, others=(plain,))]
    alone = runs(one, "run")
    train_all(3, alone, "roles.servers=1", "debug.verify_rows=true")
    two_servers = ("roles.servers=2", "debug.verify_rows=true")
    deaf = settings_of("sgd, adaptive", profile, *two_servers, f"train.output={tmp_path / 'deaf'}")
    breakages = "--break", *[NOTHING] * len(found), "trainers do not hear"
    said.append(train_all(5, found, *two_servers, others=(deaf,), breakages=breakages))
    replaying = f"policy.replay={found['adam, adaptive', 2]}", f"train.output={tmp_path / 'replayed'}"
    replayed = settings_of("adam, adaptive", profile, *replaying, "train.reference_slices=2")
    train(run_ranks, 1, short_config, [replayed], tmp_path)

    run = as_replayed(prepare_run(load_config(short_config, [*replayed, "train.resume="])))
    summary = json.loads((found["adam, adaptive", 2] / "summary.json").read_text())
    moved = sum(trainer["rows_fetched"] for trainer in summary["trainers"]) / 2
    assert measure_traffic(run, 2).rows["fetched"] == pytest.approx(moved)

    for kind, output in (alone | found).items():
        assert compare(references[kind], output).largest() == 0.0, kind
    assert compare(found["sgd", 2], tmp_path / "bagpipe").largest() > 1e-3  # another order trains otherwise
    assert compare(found["sgd, adaptive", 2], tmp_path / "deaf").largest() > 1e-3
    assert compare(found["adam, adaptive", 2], tmp_path / "replayed").largest() == 0.0
    for case, decision in DECIDED.items():
        assert all(decision in told for told in said), case
        heard = [load_checkpoint(output).manifest.heard for output in (references[case, 2], found[case, 2])]
        assert heard[0] == heard[1]
        assert [one.place for one in heard[0]] == [(step // 14, 2 + step % 14) for step in range(0, 26, 2)]
