"""The job scripts, run with what Slurm would set; its commands and the launcher are stood in for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ranks import ROOT

SWEEP = ["train.seed=1,2", "model.top_mlp=[64, 16],[8]"]


class Job:
    """A site and a job on it; the launcher and scontrol write their arguments to files of their names.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        self.bin.mkdir(parents=True)
        self.stand_in("bagpipe", f'exec "{sys.executable}" -m bagpipe_hpc "$@"')
        self.stand_in("launch", f"printf '%s\\n' \"$@\" >'{folder / 'launch'}'")
        self.stand_in("srun", "exit 0")
        self.stand_in("scontrol", f"echo JobState=RUNNING; printf '%s\\n' \"$@\" >'{folder / 'scontrol'}'")
        (folder / "site.env").write_text(
            f"MODULES=()\nVENV='{os.path.relpath(folder / 'venv', ROOT)}'\nLAUNCHER=(launch --mpi=pmix)\n"
            "SITE_VARIABLES=(SITE_SAYS=hello)\n"
        )
        (folder / "run.toml").write_text(f'train.output = "{folder}/out"\n')

    def stand_in(self, name: str, body: str) -> None:
        (self.bin / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (self.bin / name).chmod(0o755)

    def run(self, script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        environment |= {"PYTHONPATH": str(ROOT), "SITE_ENV": str(self.folder / "site.env")}
        environment |= {"SLURM_SUBMIT_DIR": str(ROOT), "SLURM_JOB_ID": "36", "SLURM_NTASKS": "5"}
        environment |= {"SLURM_JOB_NODELIST": "node[1-2]"} | variables
        command = [str(ROOT / "slurm" / script), *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    def given_to(self, name: str) -> list[str]:
        """The arguments of the last call of a stand-in."""
        return (self.folder / name).read_text().splitlines()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_a_task_of_the_array_trains_its_run(job: Job) -> None:
    config = f"{job.folder}/run.toml"
    ended = job.run("sweep.sh", config, *SWEEP, SLURM_ARRAY_JOB_ID="36", SLURM_ARRAY_TASK_ID="2")
    assert ended.returncode == 0, ended.stderr
    assert job.given_to("launch") == [
        *["--mpi=pmix", "-n", "5", "bagpipe", "train", config, "train.seed=2", "model.top_mlp=[64, 16]"],
        f"train.output={job.folder}/out/train.seed=2,model.top_mlp=64-16",
    ]


def test_a_requeued_task_goes_on_with_its_run(job: Job) -> None:
    task = {"SLURM_ARRAY_JOB_ID": "36", "SLURM_ARRAY_TASK_ID": "3", "SLURM_RESTART_COUNT": "1"}
    assert job.run("sweep.sh", f"{job.folder}/run.toml", *SWEEP, **task).returncode == 0
    assert job.given_to("launch")[-2:] == [
        f"train.output={job.folder}/out/train.seed=2,model.top_mlp=8",
        "train.resume=auto",
    ]


@pytest.mark.parametrize(
    ("task", "number"), [({"SLURM_ARRAY_JOB_ID": "36", "SLURM_ARRAY_TASK_ID": "3"}, "36_3"), ({}, "36")]
)
def test_a_warned_job_requeues_itself_alone(job: Job, task: dict[str, str], number: str) -> None:
    job.stand_in("bagpipe", "exit 1")  # nothing to stop yet, so the launcher is ended
    job.stand_in("launch", 'kill -USR1 "$PPID"; exec sleep 30')
    ended = job.run("train.sh", f"{job.folder}/run.toml", **task)
    assert "job 36: requeued" in ended.stdout, ended.stderr
    assert job.given_to("scontrol") == ["requeue", number]


@pytest.mark.parametrize(
    ("launcher", "status", "state", "answer", "waits"),
    [
        ("srun", 14, "RUNNING", 1, True),  # the ranks of a node that is gone have taken the others with them
        ("srun", 14, "RUNNING", 0, False),  # the run has failed by itself
        ("srun", 14, "CANCELLED", 1, False),
        ("srun", 0, "RUNNING", 1, False),
        ("launch", 0, "RUNNING", 1, True),  # as Open MPI's mpirun ends where it has lost a node
        ("launch", 0, "RUNNING", 0, False),
    ],
)
def test_a_job_that_lost_a_node_waits_to_be_requeued(
    job: Job, launcher: str, status: int, state: str, answer: int, waits: bool
) -> None:
    """`launcher` starts the ranks and ends with `status`; then srun looks whether nodes answer."""
    (job.folder / "site.env").write_text(
        (job.folder / "site.env").read_text().replace("launch --mpi=pmix", f"{launcher} --mpi=pmix")
    )
    job.stand_in("launch", f"exit {status}")
    job.stand_in("scontrol", f"echo JobState={state}")
    job.stand_in("srun", f'[ "$1" = --mpi=pmix ] && exit {status}; exit {answer}')
    job.stand_in("sleep", f"echo \"$1\" >'{job.folder}/sleep'")
    ended = job.run("train.sh", f"{job.folder}/run.toml")
    assert ended.returncode == (status or int(waits)), ended.stderr
    assert ("job 36: a node does not answer, waiting for Slurm to requeue the job" in ended.stdout) == waits
    assert (job.folder / "sleep").exists() == waits


@pytest.mark.parametrize("asked", ["NONE", "SITE_SAYS", None])
def test_ranks_get_the_environment_whatever_sbatch_exports(job: Job, asked: str | None) -> None:
    """As srun's default: sbatch sets SLURM_EXPORT_ENV to what its own --export says."""
    job.stand_in("launch", f"printf '%s\\n' \"$SLURM_EXPORT_ENV\" \"$SITE_SAYS\" >'{job.folder / 'launch'}'")
    exported = {"SLURM_EXPORT_ENV": asked} if asked else {}
    assert job.run("train.sh", f"{job.folder}/run.toml", **exported).returncode == 0
    assert job.given_to("launch") == ["ALL", "hello"]


def test_the_environment_may_be_anywhere(job: Job) -> None:
    site = job.folder / "site.env"
    site.write_text(site.read_text() + f"VENV='{job.folder / 'venv'}'\n")
    assert job.run("train.sh", f"{job.folder}/run.toml").returncode == 0
    assert job.given_to("launch")[:4] == ["--mpi=pmix", "-n", "5", "bagpipe"]


@pytest.mark.parametrize(
    ("arguments", "task", "message"),
    [
        (["run.toml"], {}, "usage: sbatch --array=0-N"),
        (["run.toml", *SWEEP], {}, "--array=0-N"),
        (["{}/run.toml", *SWEEP], {"SLURM_ARRAY_TASK_ID": "4"}, "--task 4: the sweep has 4 runs, 0 to 3"),
        (["{}/run.toml", "train.seed=1,x"], {"SLURM_ARRAY_TASK_ID": "0"}, "run 1 (train.seed=x)"),
    ],
)
def test_a_wrong_sweep_starts_nothing(job: Job, arguments: list[str], task: dict[str, str], message: str) -> None:
    ended = job.run("sweep.sh", *(argument.format(job.folder) for argument in arguments), **task)
    assert ended.returncode != 0
    assert message in ended.stderr
    assert not (job.folder / "launch").exists()


def test_a_benchmark_on_one_node_starts_its_ranks_itself(job: Job) -> None:
    job.stand_in("python", f'printf \'%s\\n\' "$HYDRA_LAUNCHER" "${{MPIRUN-}}" "$@" >\'{job.folder}/python\'')
    assert job.run("bench.sh", "step", "--quick", SLURM_JOB_NUM_NODES="1").returncode == 0
    assert job.given_to("python") == ["fork", "", "-m", "benchmarks", "step", "--quick"]


def test_a_benchmark_over_nodes_has_the_sites_launcher_start_its_ranks(job: Job) -> None:
    job.stand_in("python", f'printf \'%s\\n\' "${{HYDRA_LAUNCHER-}}" "$MPIRUN" "$@" >\'{job.folder}/python\'')
    assert job.run("bench.sh", "store", "--quick", SLURM_JOB_NUM_NODES="3").returncode == 0
    started = ["-m", "benchmarks", "store", "--quick", "--link", "nodes"]
    assert job.given_to("python") == ["", "launch --mpi=pmix", *started]


def test_a_benchmark_of_one_node_refuses_several(job: Job) -> None:
    ended = job.run("bench.sh", "step", SLURM_JOB_NUM_NODES="2")
    assert ended.returncode == 2
    assert "step measures one node, and this job has 2" in ended.stderr


def test_the_containers_command_passes_everything_on(job: Job) -> None:
    job.stand_in("apptainer", f"printf '%s\\n' \"$@\" >'{job.folder}/apptainer'")
    path = f"{job.bin}{os.pathsep}{os.environ['PATH']}"
    arguments = ["train", "run.toml", "model.top_mlp=[64, 16]"]
    assert job.run("container/bin/bagpipe", *arguments, PATH=path, BAGPIPE_IMAGE="my image.sif").returncode == 0
    assert job.given_to("apptainer") == ["exec", "my image.sif", "bagpipe", *arguments]


def test_ranks_share_a_preparation(job: Job) -> None:
    arguments = ["--input", "day_* 1.gz", "--output", "my shards"]
    assert job.run("prepare.sh", *arguments, SLURM_NTASKS="4").returncode == 0
    assert job.given_to("launch") == ["--mpi=pmix", "-n", "4", "bagpipe", "prepare", *arguments]


def test_a_preparation_of_one_task_needs_no_launcher(job: Job) -> None:
    job.stand_in("bagpipe", f"printf '%s\\n' \"$@\" >'{job.folder / 'bagpipe'}'")
    assert job.run("prepare.sh", "--input", "a", SLURM_NTASKS="1").returncode == 0
    assert job.given_to("bagpipe") == ["prepare", "--input", "a"]
    assert not (job.folder / "launch").exists()
