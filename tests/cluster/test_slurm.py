"""The job scripts under a real Slurm: every job that was interrupted ends with the bits of one that was left alone.

They run under `make test-cluster`, beside the controller of a Slurm with six nodes, of which the last two have GPUs by
name; the last test switches one off.
"""

import filecmp
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bagpipe_hpc.tools.inspection.compare import compare
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.cluster.slurm_jobs import Job, nodes_of_ranks, run, submit, switch_off
from tests.end_to_end.conftest import CONFIG
from tests.ranks import ROOT, rank_environment
from tests.tutorials import follow

pytestmark = [
    pytest.mark.skipif("EMULATED_SLURM" not in os.environ, reason="needs a Slurm: make test-cluster"),
    pytest.mark.timeout(900),  # each wait has a limit of its own
]

SETTINGS = (
    "train.epochs=32",
    "train.checkpoint_every_steps=11",
    "train.deterministic=true",
    "train.dense_sums=mpi",  # ranks that outnumber the cores share them, where Horovod's threads spin
    "train.timeout_s=120",
    "roles.servers=2",
)
"""A run of several times what passes until it can be told to stop, or until a second job has started beside it."""
FIVE_RANKS = ("--nodes=4", "--ntasks=5")
GOING_ON = "^going on after step "

Train = Callable[..., tuple[Job, Path]]


def srun() -> str:
    """srun with the PMI that the MPI of this environment speaks."""
    version = run("mpirun", "--version", env=rank_environment())
    return f"srun --mpi={'pmix' if 'Open MPI' in version else 'pmi2'} --kill-on-bad-exit=1"


def site(folder: Path, launcher: str) -> dict[str, str]:
    """The variable that names a `site.env` with this environment and launcher."""
    path = folder / "site.env"
    venv = Path(sys.prefix).relative_to(ROOT)
    variables = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1"
    path.write_text(f"MODULES=()\nVENV={venv}\nLAUNCHER=({launcher})\nSITE_VARIABLES=({variables})\n")
    return {"SITE_ENV": str(path)}


def prepare(folder: Path, rows: int, rows_per_shard: int, ranks: int = 1) -> Job:
    """Submit `slurm/prepare.sh`: `clicks.tsv` to `shards`, both in a folder; several ranks are on a node each."""
    generate_clicks(rows, folder / "clicks.tsv", seed=3)
    arguments = (
        "--input",
        folder / "clicks.tsv",
        "--output",
        folder / "shards",
        "--rows-per-shard",
        str(rows_per_shard),
    )
    options = (f"--ntasks={ranks}", "--ntasks-per-node=1", "--cpus-per-task=1")
    launcher = "unused" if ranks == 1 else srun()
    return submit(folder / "prepare.log", *options, "slurm/prepare.sh", *arguments, env=site(folder, launcher))


@pytest.fixture(scope="module")
def config_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny configuration, over shards that a job has prepared."""
    folder = tmp_path_factory.mktemp("clicks")
    job = prepare(folder, 2023, 700)
    job.await_success()
    assert job.lines("^wrote 2,023 rows ")
    path = folder / "tiny.toml"
    path.write_text(CONFIG.format(shards=folder / "shards"))
    return path


@pytest.fixture(scope="module")
def train(config_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """`train(*options, launcher=...)`: submit `slurm/train.sh`; the job and its output folder."""

    def start(*options: str, launcher: str = "") -> tuple[Job, Path]:
        folder = tmp_path_factory.mktemp("train")
        arguments = ("slurm/train.sh", config_path, f"train.output={folder / 'run'}", *SETTINGS)
        return submit(folder / "log", *options, *arguments, env=site(folder, launcher or srun())), folder / "run"

    return start


@pytest.fixture(scope="module")
def whole(train: Train) -> Path:
    """The output of a job that is left alone: five ranks on four nodes."""
    job, output = train(*FIVE_RANKS)
    job.await_success()
    assert job.lines("^job ") == [f"job {job.number}, start 1: 5 ranks on host[1-4]"]
    assert {node for _, node in nodes_of_ranks(output)} == {"host1", "host2", "host3", "host4"}
    return output


def test_a_requeued_preparation_goes_on(tmp_path: Path) -> None:
    """Two ranks end with the files of one that was left alone."""
    job = prepare(tmp_path, 60_000, 50, ranks=2)  # so many shards take some seconds
    job.await_line("^built vocabularies")
    run("scontrol", "requeue", job.number)
    job.await_success()
    assert len(job.lines("^going on after ")) == 1
    prepare_clicks(
        [str(tmp_path / "clicks.tsv")], tmp_path / "whole", PrepareSettings(rows_per_shard=50), lambda _: None
    )
    names = sorted(path.name for path in (tmp_path / "whole").glob("*.h5"))
    assert {"train-01079.h5", "test-00119.h5"} <= set(names)
    assert filecmp.cmpfiles(tmp_path / "whole", tmp_path / "shards", names, shallow=False) == (names, [], [])


def test_mpirun_knows_the_nodes_of_the_job(train: Train, whole: Path) -> None:
    """`whole` was started with srun."""
    job, output = train(*FIVE_RANKS, launcher="mpirun")
    job.await_success()
    assert {node for _, node in nodes_of_ranks(output)} == {"host1", "host2", "host3", "host4"}
    assert compare(whole, output).largest() == 0.0


def test_a_job_whose_time_runs_out(train: Train, whole: Path) -> None:
    """Before its run has begun, so that this gets as far as a checkpoint, and again, several times."""
    job, output = train(*FIVE_RANKS)
    job.await_line(", start 1:")
    job.signal(signal.SIGUSR1)
    job.await_line(GOING_ON)
    for _ in range(4):
        job.signal(signal.SIGUSR1)
    job.await_success()
    prefix = f"job {job.number}"
    placed = "5 ranks on host[1-4]"
    warned = f"{prefix}: the end is near, stopping with a checkpoint"
    waited = f"{prefix}: waiting until the run can be told: bagpipe: error: {output}: no run is in this folder"
    assert job.lines("^job ")[2].startswith(waited)
    assert [line for line in job.lines("^job ") if not line.startswith(waited)] == [
        f"{prefix}, start 1: {placed}",
        warned,
        f"{prefix}: asking Slurm to requeue it",
        f"{prefix}, start 2: {placed}",
        warned,
        f"{prefix}: asking Slurm to requeue it",
        f"{prefix}, start 3: {placed}",
    ]
    assert len(job.lines("^stopped as asked, with a checkpoint")) == 2
    assert len(job.lines(GOING_ON)) == 2
    assert compare(whole, output).largest() == 0.0


def test_a_preempted_job(train: Train, whole: Path, tmp_path: Path) -> None:
    """A more urgent one takes its nodes; Slurm tells the ranks, not the script."""
    job, output = train(*FIVE_RANKS)
    job.await_training(output)
    urgent = submit(
        tmp_path / "log", "--partition=urgent", "--nodes=6", "--exclusive", "--wrap", "echo $SLURM_JOB_NODELIST"
    )
    urgent.await_success()
    job.await_success()
    assert urgent.output() == "host[1-6]\n"
    assert len(job.lines("^asked to stop by SIGTERM")) == 1
    assert job.field("Restarts") == "1"
    assert len(job.lines(GOING_ON)) == 1
    assert compare(whole, output).largest() == 0.0


def test_a_cancelled_job_stays_away(train: Train) -> None:
    job, output = train(*FIVE_RANKS)
    job.await_training(output)
    run("scancel", job.number)
    assert job.await_end() == "CANCELLED"
    assert job.lines("^job ") == [f"job {job.number}, start 1: 5 ranks on host[1-4]"]
    assert job.field("Restarts") == "0"


def test_a_sweep_is_an_array(config_path: Path, whole: Path, tmp_path: Path) -> None:
    """Each task is a run with a folder of its own. One that is warned comes again alone, and as the same run."""
    swept = "optimizer.rows_lr=0.05,0.01"
    arguments = ("slurm/sweep.sh", config_path, f"train.output={tmp_path}", *SETTINGS, swept)
    env = site(tmp_path, srun())
    array = submit(tmp_path / "%a.log", "--array=0-1", "--nodes=2", "--ntasks=5", *arguments, env=env)
    tasks = [Job(f"{array.number}_{number}", tmp_path / f"{number}.log") for number in range(2)]
    tasks[0].await_training(tmp_path / "optimizer.rows_lr=0.05")
    tasks[0].signal(signal.SIGUSR1)
    for task in tasks:
        task.await_success()
    assert [len(task.lines("^job .*, start ")) for task in tasks] == [2, 1]
    assert len(tasks[0].lines(GOING_ON)) == 1
    assert compare(whole, tmp_path / "optimizer.rows_lr=0.05").largest() == 0.0
    assert compare(whole, tmp_path / "optimizer.rows_lr=0.01").largest() > 0.0


@pytest.mark.parametrize(("nodes", "links"), [(1, ("--link", "native")), (3, ())])
def test_a_benchmark_is_a_job(nodes: int, links: tuple[str, ...], tmp_path: Path) -> None:
    """On one node it starts its ranks itself; over several, Slurm does."""
    arguments = ("slurm/bench.sh", "store", "--runs=1", "--servers=1", "--trainers=1", "--row-bytes=64", *links)
    job = submit(tmp_path / "log", f"--nodes={nodes}", *arguments, env=site(tmp_path, srun()))
    job.await_success()
    result = json.loads(job.output().splitlines()[-1])
    assert result["benchmark"] == "store"


def test_the_tutorial_can_be_followed(tmp_path: Path) -> None:
    """Its jobs end well, and the run that goes on in a second job ends with the bits of the one that does not."""
    (tmp_path / "reader").mkdir()
    followed = follow("tutorial-cluster", tmp_path / "reader", 800, site(tmp_path, srun()))
    assert followed.returncode == 0, followed.stdout + followed.stderr


def test_cpu_nodes_and_gpu_nodes(train: Train, whole: Path) -> None:
    """A heterogeneous job is one world; it stops, comes again and goes on like another."""
    job, output = train("--nodes=2", "--ntasks=3", ":", "--nodes=2", "--ntasks=2", "--gpus-per-node=1")
    job.await_training(output)
    job.signal(signal.SIGUSR1)
    job.await_success()
    assert len(job.lines("^job .*: 3 ranks on host.1-2., 2 ranks on host.5-6.$")) == 2
    assert len(job.lines(GOING_ON)) == 1
    nodes = nodes_of_ranks(output)
    assert {node for role, node in nodes if role != "trainer"} == {"host1", "host2"}
    assert [node for role, node in nodes if role == "trainer"] == ["host5", "host6"]
    assert compare(whole, output).largest() == 0.0


def test_nodes_die(train: Train, whole: Path) -> None:
    """First a node of two jobs, then, of two others, the one on which their scripts run.

    The jobs come again on the nodes that are left, and go on from the last checkpoint that was due.
    """
    for dying, before, after in (("host4", "1-4", "1-3,5"), ("host1", "1-3,5", "2-3,5-6")):
        jobs = [train(*FIVE_RANKS, launcher=srun())]
        jobs[0][0].await_line("^host1: ")  # the slow part of a start under some srun is over
        jobs.append(train(*FIVE_RANKS, launcher="mpirun"))
        for job, output in jobs:
            job.await_training(output)
        switch_off(dying)
        for job, output in jobs:
            job.await_success()
            placed = f"job {job.number}, start %d: 5 ranks on host[%s]"
            assert job.lines("^job .*, start") == [placed % (1, before), placed % (2, after)]
            assert len(job.lines(GOING_ON)) == 1
            assert compare(whole, output).largest() == 0.0
