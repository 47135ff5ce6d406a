"""The job scripts, run with what Slurm would set; its commands and the launcher are stood in for."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

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
        self.slurm_says()
        (folder / "site.env").write_text(
            f"MODULES=()\nVENV='{os.path.relpath(folder / 'venv', ROOT)}'\nLAUNCHER=(launch --mpi=pmix)\n"
            "SITE_VARIABLES=(SITE_SAYS=hello)\n"
        )
        (folder / "run.toml").write_text(f'train.output = "{folder}/out"\n')

    def stand_in(self, name: str, body: str) -> None:
        (self.bin / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (self.bin / name).chmod(0o755)

    def slurm_says(self, number: str = "JobId=36", state: str = "RUNNING", requeue: int = 1, before: str = "") -> None:
        """Have scontrol show this job; `before` is what it does first."""
        told = f"{number} JobName=bagpipe JobState={state} Requeue={requeue} PreemptTime=None SuspendTime=None"
        self.stand_in(
            "scontrol",
            f"{before}\n[ $1 = requeue ] || echo '{told}'; printf '%s\\n' \"$@\" >'{self.folder / 'scontrol'}'",
        )

    def can_be_told(self, before: str = "") -> None:
        """Have the launcher warn the job's script, and end well when the run is told to stop; `before` as above."""
        told = self.folder / "told"
        self.stand_in("bagpipe", f"{before}\ntouch '{told}'")
        self.stand_in("launch", f"kill -USR1 \"$PPID\"; until [ -e '{told}' ]; do /bin/sleep 0.05; done")
        self.stand_in("sleep", "/bin/sleep 0.1")

    def run(
        self, script: str, *arguments: str, stdout: IO[str] | int = subprocess.PIPE, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "BAGPIPE_"))}
        environment |= {"PYTHONPATH": str(ROOT), "SITE_ENV": str(self.folder / "site.env")}
        environment |= {"SLURM_SUBMIT_DIR": str(ROOT), "SLURM_JOB_ID": "36", "SLURM_NTASKS": "5"}
        environment |= {"SLURM_JOB_NODELIST": "node[1-2]"} | variables
        command = [str(ROOT / "slurm" / script), *arguments]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
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
        "--requeued",
    ]


@pytest.mark.parametrize(("tasks", "placed"), [("1", "1 rank"), ("12", "12 ranks")])
def test_a_job_says_where_its_ranks_are(job: Job, tasks: str, placed: str) -> None:
    ended = job.run("train.sh", f"{job.folder}/run.toml", SLURM_NTASKS=tasks)
    assert ended.stdout.splitlines() == [f"job 36, start 1: {placed} on node[1-2]"], ended.stderr


@pytest.mark.parametrize(("said", "number"), [("JobId=36 ArrayJobId=36 ArrayTaskId=3", "36_3"), ("JobId=36", "36")])
@pytest.mark.parametrize("inherited", [{}, {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}])
def test_a_warned_job_requeues_itself_alone(job: Job, said: str, number: str, inherited: dict[str, str]) -> None:
    """Not the job in which sbatch was called, whose variables it has."""
    job.can_be_told()
    job.slurm_says(said)
    ended = job.run("train.sh", f"{job.folder}/run.toml", **inherited)
    assert ended.returncode == 0, ended.stderr
    assert "job 36: asking Slurm to requeue it" in ended.stdout
    assert job.given_to("scontrol") == ["requeue", number]


def test_a_job_that_is_warned_before_its_run_has_begun_tells_it_then(job: Job) -> None:
    """So that it gets ahead by a checkpoint, also where each start of it is warned so early."""
    asked = job.folder / "asked"
    job.can_be_told(f"if ! [ -e '{asked}' ]; then touch '{asked}'; echo no run >&2; exit 2; fi")
    ended = job.run("train.sh", f"{job.folder}/run.toml")
    assert ended.stdout.splitlines()[1:] == [
        "job 36: the end is near, stopping with a checkpoint",
        "job 36: waiting until the run can be told: no run",
        "job 36: asking Slurm to requeue it",
    ], ended.stderr


@pytest.mark.parametrize("status", [0, 2])
def test_a_warned_job_whose_run_ends_by_itself_stays_away(job: Job, status: int) -> None:
    """It has nothing left to do, or is refused, and would be again."""
    job.can_be_told("exit 2")
    job.stand_in("launch", f'kill -USR1 "$PPID"; /bin/sleep 0.5; exit {status}')
    ended = job.run("train.sh", f"{job.folder}/run.toml")
    assert ended.returncode == status
    assert "requeue" not in ended.stdout


def test_a_warning_after_the_end_of_the_run_changes_nothing(job: Job) -> None:
    script = job.folder / "script"
    job.stand_in("launch", f"echo \"$PPID\" >'{script}'")
    job.slurm_says(before=f"kill -USR1 $(cat '{script}')")
    ended = job.run("train.sh", f"{job.folder}/run.toml")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["job 36, start 1: 5 ranks on node[1-2]"]


def test_a_log_on_a_full_disk_ends_no_job(job: Job) -> None:
    job.can_be_told()
    with Path("/dev/full").open("w") as full:
        ended = job.run("train.sh", f"{job.folder}/run.toml", stdout=full)
    assert ended.returncode == 0, ended.stderr
    assert job.given_to("scontrol") == ["requeue", "36"]


def test_a_job_that_may_not_be_requeued_says_so(job: Job) -> None:
    job.can_be_told()
    job.slurm_says(requeue=0)
    ended = job.run("train.sh", f"{job.folder}/run.toml")
    assert ended.returncode == 1
    assert "job 36: it may not be requeued (Requeue=0); submit it again with train.resume=auto" in ended.stdout


def test_a_job_that_slurm_does_not_requeue_says_so(job: Job) -> None:
    job.can_be_told()
    job.slurm_says(before="[ $1 != requeue ] || exit 1")
    ended = job.run("train.sh", f"{job.folder}/run.toml")
    assert ended.returncode == 1
    assert ended.stdout.splitlines()[-1] == "job 36: Slurm did not requeue it; submit it again with train.resume=auto"


@pytest.mark.parametrize(("answers", "code"), [(True, 0), (False, 1)])
def test_a_controller_may_take_a_while_to_answer(job: Job, answers: bool, code: int) -> None:
    job.can_be_told()
    asked = job.folder / "asked"
    mark = f"touch '{asked}';" if answers else ""
    job.slurm_says(before=f"if ! [ -e '{asked}' ]; then {mark} exit 1; fi")
    ended = job.run("train.sh", f"{job.folder}/run.toml")
    assert ended.returncode == code, ended.stderr
    said = "asking Slurm to requeue it" if answers else "Slurm does not answer; submit it again with train.resume=auto"
    assert ended.stdout.splitlines()[-1] == f"job 36: {said}"


def test_a_task_that_is_warned_before_it_knows_its_run_tells_it_then(job: Job) -> None:
    job.can_be_told('if [ "$1" = sweep ]; then kill -USR1 "$PPID"; echo train.seed=1; exit; fi')
    job.stand_in("launch", f"until [ -e '{job.folder}/told' ]; do /bin/sleep 0.05; done")
    ended = job.run("sweep.sh", f"{job.folder}/run.toml", *SWEEP, SLURM_ARRAY_TASK_ID="0")
    assert ended.returncode == 0, ended.stderr
    assert "job 36: asking Slurm to requeue it" in ended.stdout


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
    job.slurm_says(state=state)
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


@pytest.mark.parametrize("name", ["MODULES", "VENV", "LAUNCHER", "SITE_VARIABLES"])
def test_what_the_sites_file_lacks_is_named(job: Job, name: str) -> None:
    site = job.folder / "site.env"
    site.write_text("".join(line for line in site.read_text().splitlines(keepends=True) if not line.startswith(name)))
    ended = job.run("train.sh", f"{job.folder}/run.toml")
    assert ended.returncode == 2
    assert ended.stderr == f"{site}: {name} is not set; take its line from slurm/site.env\n"


@pytest.mark.parametrize("script", ["train.sh", "prepare.sh", "sweep.sh"])
def test_an_installation_serves_jobs_of_other_folders(job: Job, script: str) -> None:
    """BAGPIPE_HOME names it, as the module file does; relative paths are of the folder in which sbatch was called."""
    job.stand_in("launch", f"printf '%s\\n' \"$PWD\" \"$@\" >'{job.folder / 'launch'}'")
    work = job.folder / "my work"
    work.mkdir()
    arguments = ["../run.toml", *(SWEEP if script == "sweep.sh" else [])]
    task = {"SLURM_ARRAY_TASK_ID": "0", "SLURM_SUBMIT_DIR": str(work)}
    refused = job.run(script, *arguments, **task)
    assert refused.returncode == 2
    assert refused.stderr == (
        f"slurm/{script}: {work} is no checkout: call sbatch in the root of one, or set BAGPIPE_HOME to it\n"
    )
    served = job.run(script, *arguments, BAGPIPE_HOME=str(ROOT), **task)
    assert served.returncode == 0, served.stderr
    assert job.given_to("launch")[:5] == [str(work), "--mpi=pmix", "-n", "5", "bagpipe"]


@pytest.mark.parametrize("name", ['it\'s "a" $HOME `b` *[c]? #;\\', "\u00fc\nnew line", os.fsdecode(b"\xff")])
@pytest.mark.parametrize("script", ["train.sh", "sweep.sh"])
def test_paths_may_hold_whatever_a_name_can(job: Job, script: str, name: str) -> None:
    job.stand_in("launch", f"printf '%s\\0' \"$PWD\" \"$@\" >'{job.folder / 'launch'}'")
    work = job.folder / name
    work.mkdir()
    (work / f"{name}.toml").write_text('train.output = "out"\n')
    task = {"SLURM_ARRAY_TASK_ID": "0", "SLURM_SUBMIT_DIR": str(work), "BAGPIPE_HOME": str(ROOT)}
    for config in (f"{work}/{name}.toml", f"{name}.toml"):
        ended = job.run(script, config, *(SWEEP if script == "sweep.sh" else []), **task)
        assert ended.returncode == 0, ended.stderr
        given = [os.fsdecode(argument) for argument in (job.folder / "launch").read_bytes().split(b"\0")]
        assert given[:7] == [str(work), "--mpi=pmix", "-n", "5", "bagpipe", "train", config]


def test_a_sites_file_that_is_not_there_is_named(job: Job) -> None:
    """Not taken from PATH, where `source` looks for a name without a slash."""
    job.stand_in("my-site.env", "exit 0")
    path = f"{job.bin}{os.pathsep}{os.environ['PATH']}"
    ended = job.run("train.sh", "run.toml", SITE_ENV="my-site.env", PATH=path)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"{ROOT}/my-site.env: cannot be read; SITE_ENV is to name your copy")


def test_an_environment_without_the_program_is_named(job: Job) -> None:
    (job.bin / "bagpipe").unlink()
    ended = job.run("train.sh", "run.toml")
    assert ended.returncode == 2
    assert "VENV: no bin/bagpipe in " in ended.stderr
    assert "run `make setup`" in ended.stderr


def test_an_environment_whose_python_is_anothers_is_named(job: Job) -> None:
    """As a Python in the home of who has made it."""
    (job.bin / "bagpipe").write_text(f"#!{job.folder}/home/python3\n")
    ended = job.run("train.sh", "run.toml")
    assert ended.returncode == 2
    assert f"bin/bagpipe is run by {job.folder}/home/python3, which you may not run on " in ended.stderr


def test_modules_need_their_command(job: Job) -> None:
    site = job.folder / "site.env"
    site.write_text(site.read_text().replace("MODULES=()", "MODULES=(openmpi/5.0)"))
    ended = job.run("train.sh", "run.toml")
    assert ended.returncode == 2
    assert "MODULES names some, and this shell has no `module`" in ended.stderr


@pytest.mark.parametrize("option", ["--nodes=4", "-N4", "-run.toml"])
def test_options_of_sbatch_behind_the_script_are_named(job: Job, option: str) -> None:
    """A file may be called like one."""
    ended = job.run("train.sh", option, "run.toml")
    assert ended.returncode == 2
    assert f"{option}: options of sbatch come before the script" in ended.stderr
    assert f"of a file, ./{option}\n" in ended.stderr
    assert not (job.folder / "launch").exists()


def test_each_component_of_a_job_says_its_ranks(job: Job) -> None:
    """sbatch sets no number of ranks where --ntasks is not given."""
    site = job.folder / "site.env"
    site.write_text(site.read_text().replace("launch --mpi=pmix", "srun --mpi=pmix"))
    nodes = {f"SLURM_JOB_NODELIST_HET_GROUP_{group}": "node1" for group in range(2)}
    ended = job.run("train.sh", f"{job.folder}/run.toml", SLURM_HET_SIZE="2", SLURM_NTASKS_HET_GROUP_0="3", **nodes)
    assert ended.returncode == 2
    assert "component 1 of the job does not say how many ranks it has; give --ntasks for each" in ended.stderr


def test_ranks_share_a_preparation(job: Job) -> None:
    arguments = ["--input", "day_* 1.gz", "--output", "my shards"]
    assert job.run("prepare.sh", *arguments, SLURM_NTASKS="4").returncode == 0
    assert job.given_to("launch") == ["--mpi=pmix", "-n", "4", "bagpipe", "prepare", *arguments]


@pytest.mark.parametrize(
    ("status", "state", "answer", "waits"),
    [
        (255, "RUNNING", 1, True),
        (0, "RUNNING", 1, True),
        (2, "RUNNING", 0, False),
        (0, "RUNNING", 0, False),
        (143, "CANCELLED", 1, False),  # mpirun may end before the script has its signal
        (0, "TIMEOUT", 1, False),
        (0, None, 1, True),  # Slurm's controller does not answer
    ],
)
def test_a_preparation_that_lost_a_node_waits_to_be_requeued(
    job: Job, status: int, state: str | None, answer: int, waits: bool
) -> None:
    """`status` is the launcher's, `answer` what becomes of the look at the nodes."""
    job.stand_in("launch", f"exit {status}")
    job.slurm_says(state=state or "RUNNING", before="" if state else "exit 1")
    job.stand_in("srun", f"exit {answer}")
    job.stand_in("sleep", f"echo \"$1\" >'{job.folder}/sleep'")
    ended = job.run("prepare.sh", "--input", "a", SLURM_NTASKS="4")
    assert ended.returncode == (status or int(waits)), ended.stderr
    assert ("job 36: a node does not answer, waiting for Slurm to requeue the job" in ended.stdout) == waits
    assert (job.folder / "sleep").exists() == waits


def test_a_preparation_of_one_task_needs_no_launcher(job: Job) -> None:
    job.stand_in("bagpipe", f"printf '%s\\n' \"$@\" >'{job.folder / 'bagpipe'}'")
    assert job.run("prepare.sh", "--input", "a", SLURM_NTASKS="1").returncode == 0
    assert job.given_to("bagpipe") == ["prepare", "--input", "a"]
    assert not (job.folder / "launch").exists()
