"""Policies whose trainers hold rows of their own, with three and four trainers and rows of several widths: bits."""

from pathlib import Path

import pytest

from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.test_equality import RunRanks, train
from tests.end_to_end.test_policies import LARGE_STEPS, SGD

WIDTHS = "model.embedding_dim_of={ C3 = 4, C7 = 12 }"
HERALD = ["policy.name=herald", "cache.rows=2000"]
HET = ["policy.name=het", "policy.staleness=0", "cache.rows=3600", *SGD, LARGE_STEPS]
CASES = {
    "herald": [*HERALD, "optimizer.rows=rowwise_adagrad"],
    "herald, several widths": [*HERALD, "optimizer.rows=adam", WIDTHS],
    "het": HET,
    "het, several widths": [*HET, WIDTHS],
}
WORLDS = {3: (0, 0, 2, 0, 2, 2), 4: (0, 0, 2, 0, 0, 2, 2)}
"""Hosts of an oracle, of two servers and of so many trainers."""
CASES_OF = {3: [*CASES], 4: [case for case in CASES if "widths" in case]}
"""What so many trainers train."""


@pytest.mark.slow
def test_many_trainers_end_with_the_references_bits(wide_config: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """Each trainer has a near server and a far one."""

    def settings_of(case: str, output: Path, *more: str) -> list[str]:
        ends = ("train.max_steps=18", "train.checkpoint_every_steps=7", "train.evaluate=false")
        return [*CASES[case], *ends, "train.deterministic=true", f"train.output={output}", *more]

    references = {(case, n): tmp_path / f"{case} of {n}" for n, cases in CASES_OF.items() for case in cases}
    alone = [settings_of(case, out, f"train.reference_slices={n}") for (case, n), out in references.items()]
    train(run_ranks, 1, wide_config, alone, tmp_path)
    found = {}
    for trainers, hosts in WORLDS.items():
        outputs = {(case, trainers): tmp_path / f"{case} by {trainers}" for case in CASES_OF[trainers]}
        runs = [settings_of(case, output, "roles.servers=2") for (case, _), output in outputs.items()]
        train(run_ranks, len(hosts), wide_config, runs, tmp_path, "--hosts", *map(str, hosts))
        found |= {kind: compare(references[kind], output).largest() for kind, output in outputs.items()}
    assert found == dict.fromkeys(references, 0.0)
