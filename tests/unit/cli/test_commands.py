"""The command line answers at once, calls the right function and returns the right exit code."""

import argparse
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bagpipe_hpc import __version__
from bagpipe_hpc.cli import outcome
from bagpipe_hpc.cli.arguments.types import named_path, path_text
from bagpipe_hpc.cli.commands import _parser, main
from bagpipe_hpc.config.schema import Config, DataConfig, TrainConfig
from bagpipe_hpc.errors import CheckpointError, DataError
from bagpipe_hpc.telemetry.run_log import Voice
from bagpipe_hpc.terminal import COLUMNS_VARIABLE, columns
from bagpipe_hpc.tools.inspection.description import Description
from bagpipe_hpc.tools.simulate.simulate import SimulationRequest

ROOT = Path(__file__).parents[2]
REPORT_IMPORTS = """
import sys
from bagpipe_hpc.cli.commands import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print("heavy:", sorted({name.partition(".")[0] for name in sys.modules} & {"h5py", "mpi4py", "numpy", "torch"}))
sys.exit(code)
"""


class Recorder:
    """Stands for the module that does a command's work and records how it is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._monkeypatch = monkeypatch

    def replace(self, module_name: str, **functions: Any) -> None:
        module = ModuleType(module_name)
        module.__dict__.update(functions)
        self._monkeypatch.setitem(sys.modules, module_name, module)

    def record(self, result: Any = None) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append((*arguments, options))
            if isinstance(result, BaseException):
                raise result
            return result

        return call


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests see no rank but one that they set, and wait for no other."""
    for name in (*outcome._RANK_VARIABLES, *outcome._HOST_RANK_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(outcome, "_FIRST_RANK_HEAD_START_S", 0.0)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """No MPI is started either, which a process can do once only."""
    recorder = Recorder(monkeypatch)
    recorder.replace("bagpipe_hpc.mpi.start.running", mpi_running=lambda *_: nullcontext())
    return recorder


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text('data.path = "shards"\n')
    return path


def run_python(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter that finds the package of this checkout."""
    return subprocess.run([sys.executable, *argv], cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)


def usage_error(*argv: str) -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    return caught.value.code


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["train", "--help"], 0),
        (["keys"], 0),
        (["fly"], 2),
        (["train", "absent.toml"], 2),
        (["prepare", "--input", "absent.tsv"], 2),
    ],
)
def test_help_and_mistakes_import_nothing_heavy(argv: list[str], code: int) -> None:
    ended = run_python("-c", REPORT_IMPORTS, *argv)
    assert ended.returncode == code, ended.stderr
    assert ended.stdout.endswith("heavy: []\n")
    assert "Traceback" not in ended.stderr


def test_the_module_runs_as_the_command() -> None:
    assert run_python("-m", "bagpipe_hpc", "--version").stdout == f"bagpipe {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "cure"),
    [
        ([], "required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["train"], "required: CONFIG.toml"),
        (["generate", "--rows", "0", "--output", "x.tsv"], "--rows: 0: use 1 or more"),
        (["generate", "--rows", "many", "--output", "x.tsv"], "--rows: 'many': use a whole number, 1 or more"),
        (["generate", "--rows", "9", "--output", "x.tsv", "--seed", "-1"], "--seed: -1: use 0 or more"),
        (["generate", "--rows", "9", "--output", "x.tsv", "--zipf", "inf"], "--zipf: inf: use a finite number above 0"),
        (["prepare", "--output", "x"], "required: --input"),
        (["prepare", "--input", "a", "--output", "x", "--test-fraction", "1"], "1: use a fraction"),
        (
            ["prepare", "--input", "a", "--output", "x", "--min-count", "2", "--max-rows-per-table", "9"],
            "not allowed with",
        ),
        (["prepare", "--schema", "", "--input", "a", "--output", "x"], "--schema: '': name a file or a folder"),
        (["compare", "a", "b", "--tolerance", "nan"], "--tolerance: nan: use a number, 0 or more"),
        (["compare", "a", "b", "--tolerance", "tiny"], "--tolerance: 'tiny': use a number"),
        (["doctor", "--timeout-s", "1e300"], "--timeout-s: 1e+300: use 86,400 or less"),
        (["simulate", "a.toml", "--compute-us-per-sample", "1e300"], "1e+300: use 86,400,000,000 or less"),
        (["simulate", "a.toml", "--message-us", "nan"], "--message-us: nan: use a finite number above 0"),
        (["simulate", "a.toml", "--server-hosts", "100001"], "--server-hosts: 100001: use 100,000 or less"),
    ],
)
def test_a_usage_error_says_the_cure_and_exits_2(
    argv: list[str], cure: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert usage_error(*argv) == 2
    assert cure in capsys.readouterr().err


def test_an_empty_path_is_no_path() -> None:
    """It would be the current folder: of a shell's variable that is not set."""
    parsers = [_parser()]
    actions: list[argparse.Action] = []
    for parser in parsers:
        actions += parser._actions
        commands = [own.choices for own in parser._actions if isinstance(own, argparse._SubParsersAction)]
        parsers += [command for named in commands for command in named.values()]
    assert len(actions) > 150
    assert not [action.dest for action in actions if action.type is Path]
    files = [action for action in actions if str(action.metavar).startswith(("FILE", "DIR", "PATH", "CONFIG"))]
    assert len(files) > 40
    assert not [action.dest for action in files if action.type not in (named_path, path_text)]
    for kind in (named_path, path_text):
        with pytest.raises(argparse.ArgumentTypeError, match="'': name a file or a folder"):
            kind("")


@pytest.mark.parametrize("path", ["~/clicks.tsv", "~me/clicks.tsv"])
def test_what_a_shell_left_as_it_is_is_no_path(path: str) -> None:
    """As of --output=~/clicks.tsv, which would make a folder called ~."""
    with pytest.raises(argparse.ArgumentTypeError, match=r"write \$HOME, or \./~ for a folder of that name"):
        named_path(path)
    assert named_path(f"./{path}") == Path(path)
    assert named_path("~clicks.tsv~") == Path("~clicks.tsv~")


def test_generate_passes_its_arguments_on(recorder: Recorder) -> None:
    recorder.replace("data_prep.generate", generate_clicks=recorder.record())
    options = ["--seed", "3", "--zipf", "1.5", "--ids-at-most", "70", "--kind", "sequences"]
    assert main(["generate", "--rows", "10", "--output", "x.tsv.gz", *options]) == 0
    assert recorder.calls == [
        (10, Path("x.tsv.gz"), {"seed": 3, "zipf": 1.5, "ids_at_most": 70, "kind": "sequences", "schema": None})
    ]


def test_prepare_passes_its_arguments_on(recorder: Recorder) -> None:
    recorder.replace("data_prep.prepare", prepare_clicks=recorder.record())
    recorder.replace("data_prep.prepare_settings", PrepareSettings=SimpleNamespace)
    sizes = ["--max-rows-per-table", "100", "--unseen-buckets", "4", "--rows-per-shard", "8192", "--test-fraction", "0"]
    storage = ["--compression", "none", "--chunk-checksums", "--skip-bad-rows", "3", "--backend", "reference"]
    assert main(["prepare", "--input", "extra.tsv", "--input", "day_*", "--output", "shards", *sizes, *storage]) == 0
    [(inputs, output, settings, _)] = recorder.calls
    assert (inputs, output) == (["extra.tsv", "day_*"], Path("shards"))
    assert settings == SimpleNamespace(
        max_rows_per_table=100,
        unseen_buckets=4,
        like=None,
        grow=None,
        evict_unused=None,
        rows_per_shard=8192,
        test_fraction=0.0,
        test_files=None,
        test_half=None,
        compression="none",
        chunk_checksums=True,
        skip_bad_rows=3,
        backend="reference",
    )


def test_the_defaults_of_prepare_are_those_of_its_settings(recorder: Recorder) -> None:
    from data_prep.prepare_settings import PrepareSettings

    recorder.replace("data_prep.prepare", prepare_clicks=recorder.record())
    assert main(["prepare", "--input", "day_*", "--output", "shards"]) == 0
    [(_, _, settings, _)] = recorder.calls
    assert settings == PrepareSettings()


@pytest.mark.parametrize("code", [0, 3])
def test_train_passes_the_configuration_on_and_returns_its_code(code: int, recorder: Recorder, run_file: Path) -> None:
    recorder.replace("bagpipe_hpc.launch", train=recorder.record(code))
    assert main(["train", str(run_file), "train.seed=9"]) == code
    config = Config(data=DataConfig(path="shards"), train=TrainConfig(seed=9))
    assert recorder.calls == [(config, None, Voice.USUAL, {"comes_again": False})]


def test_train_is_told_that_its_job_comes_again(recorder: Recorder, run_file: Path) -> None:
    recorder.replace("bagpipe_hpc.launch", train=recorder.record(0))
    assert main(["train", str(run_file), "train.seed=9", "--requeued"]) == 0
    assert recorder.calls[0][-1] == {"comes_again": True}


@pytest.mark.parametrize(("option", "voice"), [("--quiet", Voice.QUIET), ("--verbose", Voice.VERBOSE)])
def test_train_says_less_or_more(
    option: str, voice: Voice, recorder: Recorder, run_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COLUMNS_VARIABLE, "80")
    recorder.replace("bagpipe_hpc.launch", train=recorder.record(0))
    assert main(["train", option, str(run_file)]) == 0
    assert recorder.calls[0][2] is voice
    assert columns() == (0 if voice is Voice.QUIET else 80)


def test_train_cannot_say_less_and_more(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--quiet", "--verbose", str(run_file)])
    assert "not allowed with argument" in capsys.readouterr().err


def test_train_without_data_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").touch()
    assert main(["train", str(tmp_path / "run.toml")]) == 2
    assert "run.toml: data.path = '': name the folder that `bagpipe prepare` wrote" in capsys.readouterr().err


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_mistake_that_all_ranks_make_is_printed_by_the_first(
    variable: str,
    rank: int,
    run_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = 1 if rank == 0 else 0
    monkeypatch.setenv(variable, str(rank))
    assert main(["train", str(run_file), "train.seed=x"]) == 2
    assert capsys.readouterr().err.count("bagpipe: error: ") == lines
    assert usage_error("train") == 2
    assert capsys.readouterr().err.count("bagpipe train: error: ") == lines


def test_a_later_error_is_printed_by_the_rank_that_has_it(
    recorder: Recorder, run_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PMI_RANK", "3")
    recorder.replace("bagpipe_hpc.launch", train=recorder.record(DataError("shard 7: is damaged; prepare it again")))
    assert main(["train", str(run_file)]) == 2
    assert capsys.readouterr().err == "bagpipe: error: shard 7: is damaged; prepare it again\n"


def test_ctrl_c_exits_130_and_says_how_to_go_on(
    recorder: Recorder, run_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder.replace("bagpipe_hpc.launch", train=recorder.record(KeyboardInterrupt()))
    assert main(["train", str(run_file)]) == 130
    told = "bagpipe: interrupted: complete checkpoints are kept; the same command with train.resume=auto goes on"
    assert told in capsys.readouterr().err
    recorder.replace("bagpipe_hpc.tools.inspection.describe", describe=recorder.record(KeyboardInterrupt()))
    assert main(["inspect", "shards"]) == 130
    assert capsys.readouterr().err == "\nbagpipe: interrupted\n"


def test_no_error_commands_the_terminal(recorder: Recorder, run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names in it come from files."""
    recorder.replace("bagpipe_hpc.launch", train=recorder.record(DataError("shard \x1b]0;owned\x07: is damaged")))
    assert main(["train", str(run_file)]) == 2
    assert capsys.readouterr().err == "bagpipe: error: shard \\x1b]0;owned\\x07: is damaged\n"


def test_a_defect_is_shown_in_full(recorder: Recorder, run_file: Path) -> None:
    recorder.replace("bagpipe_hpc.launch", train=recorder.record(ZeroDivisionError("a defect")))
    with pytest.raises(ZeroDivisionError, match="a defect"):
        main(["train", str(run_file)])


def test_inspect_prints_the_description(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    recorder.replace("bagpipe_hpc.tools.inspection.describe", describe=recorder.record(Description("26 tables")))
    assert main(["inspect", "shards"]) == 0
    assert main(["inspect", "--verify", "shards"]) == 0
    assert capsys.readouterr().out == "26 tables\n" * 2
    assert recorder.calls == [(Path("shards"), {"verify": False}), (Path("shards"), {"verify": True})]


def test_inspect_fails_where_files_are_damaged(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    found = Description("26 tables", ("a.h5: is absent", "b.h5: has 3 bytes"))
    recorder.replace("bagpipe_hpc.tools.inspection.describe", describe=recorder.record(found))
    assert main(["inspect", "--verify", "shards"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "26 tables\n"
    assert captured.err == "bagpipe: a.h5: is absent\nbagpipe: b.h5: has 3 bytes\n"


@pytest.mark.parametrize(
    ("largest", "options", "code"),
    [
        (0.0, [], 0),
        (1e-9, [], 1),
        (1e-9, ["--tolerance", "1e-9"], 0),
        (2e-9, ["--tolerance", "1e-9"], 1),
        (float("nan"), ["--tolerance", "inf"], 1),
    ],
)
def test_compare_exits_by_the_largest_difference(
    largest: float, options: list[str], code: int, recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison = SimpleNamespace(report=lambda: "tables: close", largest=lambda: largest)
    recorder.replace("bagpipe_hpc.tools.inspection.compare", compare=recorder.record(comparison))
    assert main(["compare", "a", "b", *options]) == code
    assert capsys.readouterr().out == "tables: close\n"
    assert recorder.calls == [(Path("a"), Path("b"), {})]


def test_compare_exits_2_on_an_error(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    recorder.replace(
        "bagpipe_hpc.tools.inspection.compare", compare=recorder.record(CheckpointError("a: is missing; name one"))
    )
    assert main(["compare", "a", "b"]) == 2
    assert capsys.readouterr().err == "bagpipe: error: a: is missing; name one\n"


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """As in `bagpipe keys | head -1`."""
    command = f"{sys.executable} -m bagpipe_hpc keys --markdown | head -c 1; echo ${{PIPESTATUS[0]}}"
    finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert finished.stderr == ""
    assert finished.stdout.endswith("0\n")


@pytest.mark.parametrize(
    "order",
    [
        "CONFIG train.seed=9 --rows 50 --trainers 1 2",
        "CONFIG --rows 50 --trainers 1 2 train.seed=9",
        "CONFIG --rows 50 train.seed=9 --trainers 1 2",
        "train.seed=9 --trainers 1 2 --rows 50 CONFIG",
    ],
)
def test_overrides_stand_anywhere(order: str, recorder: Recorder, run_file: Path) -> None:
    finished = SimpleNamespace(finish=lambda _: None)
    recorder.replace(
        "bagpipe_hpc.tools.simulate.simulate", simulate=recorder.record(finished), SimulationRequest=SimulationRequest
    )
    command = ["simulate", "--compute-us-per-sample", "3", *order.replace("CONFIG", str(run_file)).split()]
    assert main(command) == 0
    [(request, _)] = recorder.calls
    assert (request.config, request.overrides) == (run_file, ["train.seed=9"])
    assert (request.rows, request.trainers) == (50, [1, 2])


def test_train_takes_overrides_before_its_file(recorder: Recorder, run_file: Path) -> None:
    recorder.replace("bagpipe_hpc.launch", train=recorder.record(0))
    assert main(["train", "train.seed=9", str(run_file)]) == 0
    assert recorder.calls == [
        (Config(data=DataConfig(path="shards"), train=TrainConfig(seed=9)), None, Voice.USUAL, {"comes_again": False})
    ]


def test_stop_takes_a_folder_that_is_called_like_an_override(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.seed=1").mkdir()
    monkeypatch.chdir(tmp_path)
    recorder.replace("bagpipe_hpc.run.output.stop_request", request_stop=recorder.record())
    assert main(["stop", "train.seed=1"]) == 0
    assert recorder.calls == [(Path("train.seed=1"), {})]


@pytest.mark.parametrize("option", ["--quiet", "--verbose"])
def test_stop_takes_the_arguments_of_the_run(option: str, recorder: Recorder, run_file: Path) -> None:
    recorder.replace("bagpipe_hpc.run.output.stop_request", request_stop=recorder.record())
    assert main(["stop", option, str(run_file), "train.output=run"]) == 0
    assert recorder.calls == [(Path("run"), {})]


def test_stop_names_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stop", str(tmp_path / "output")]) == 2
    assert f"{tmp_path}/output: is not there; name train.output of a run" in capsys.readouterr().err


@pytest.mark.parametrize(("home", "script"), [("", "slurm/sweep.sh"), ("/my sw", "'/my sw/slurm/sweep.sh'")])
def test_sweep_lists_the_runs_and_how_to_submit_them(
    run_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, home: str, script: str
) -> None:
    monkeypatch.setenv("BAGPIPE_HOME", home)
    assert main(["sweep", str(run_file), "train.seed=1,2", "model.top_mlp=[64, 16]"]) == 0
    printed = capsys.readouterr()
    assert printed.out == (
        "0  train.seed=1 'model.top_mlp=[64, 16]' train.output=output/train.seed=1\n"
        "1  train.seed=2 'model.top_mlp=[64, 16]' train.output=output/train.seed=2\n"
    )
    submit = f"2 runs: sbatch --array=0-1 {script} {run_file} train.seed=1,2 'model.top_mlp=[64, 16]'\n"
    assert printed.err == submit


@pytest.mark.parametrize("place", range(4))
def test_sweep_prints_one_run_for_a_script(place: int, run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(run_file), "train.seed=1,2", "model.top_mlp=[64, 16]"]
    assert main(["sweep", *arguments[:place], "--task", "1", *arguments[place:]]) == 0
    assert capsys.readouterr().out == "train.seed=2\nmodel.top_mlp=[64, 16]\ntrain.output=output/train.seed=2\n"


def test_sweep_refuses_a_task_that_is_none(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--task", "2", str(run_file), "train.seed=1,2"]) == 2
    assert "--task 2: the sweep has 2 runs, 0 to 1" in capsys.readouterr().err


def test_bench_names_the_command_of_today(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "step", "--link", "1gbit", "--set", "train.seed=1", "-h"]) == 2
    told = "run `python -m benchmarks step --link 1gbit --set train.seed=1 -h` in a checkout of the project"
    assert told in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "bench" not in capsys.readouterr().out


def test_a_rank_whose_host_has_not_the_module_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first rank found it: nobody else would say why the job ends."""
    (tmp_path / "run.toml").write_text("")
    monkeypatch.setenv("PMI_RANK", "1")
    assert main(["train", str(tmp_path / "run.toml"), "model.name=not_here:Model"]) == 2
    assert f"error: on host {socket.gethostname()}: override 'model.name=not_here:Model'" in capsys.readouterr().err
    assert main(["train", str(tmp_path / "run.toml"), "model.name=dlmr"]) == 2
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("MPI_LOCALRANKID", "1")  # its host's first rank says it
    assert main(["train", str(tmp_path / "run.toml"), "model.name=not_here:Model"]) == 2
    assert capsys.readouterr().err == ""
