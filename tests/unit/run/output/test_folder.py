"""The output folder is started with the resolved settings, and an earlier run in it is not lost by accident."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config, TrainConfig
from bagpipe_hpc.errors import CheckpointError, ConfigError, OutputError
from bagpipe_hpc.preparation.training import Training
from bagpipe_hpc.run.output.folder import (
    CONFIG_NAME,
    LOGS_NAME,
    RunSoFar,
    check_output,
    check_writable,
    hold_output,
    is_own_checkpoint,
    requeued,
    require_untouched,
    start_output,
)
from bagpipe_hpc.run.output.job_mark import MARK_NAME
from bagpipe_hpc.run.output.stop_request import STOP_NAME, request_stop
from bagpipe_hpc.storage.checkpoints.best import BEST_NAME, Best, read_best, write_best
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoints.folder import CHECKPOINTS_FOLDER, find_checkpoints
from bagpipe_hpc.storage.output_errors import writing
from bagpipe_hpc.storage.policy_memory import memory_path, save_memory
from bagpipe_hpc.storage.run_lock import LOCK_NAME
from tests.unit.checkpoint_samples import sample_records, write_checkpoint


def in_output(output: Path, *, overwrite: bool = False, resume: str = "") -> Config:
    return Config(train=TrainConfig(output=str(output), overwrite=overwrite, resume=resume))


def test_the_output_folder_gets_the_resolved_settings(tmp_path: Path) -> None:
    config = in_output(tmp_path / "new" / "run")
    start_output(config, None)
    assert load_config(tmp_path / "new" / "run" / CONFIG_NAME) == config
    assert (tmp_path / "new" / "run" / LOGS_NAME).is_dir()


@pytest.mark.parametrize(
    "content",
    ["config.toml", "metrics.jsonl", "summary.json", "resources.json", "logs", "checkpoints", "status", "tensorboard"],
)
def test_an_earlier_run_is_left_alone(tmp_path: Path, content: str) -> None:
    earlier = tmp_path / content
    earlier.mkdir() if "." not in content else earlier.write_text("earlier", encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"holds an earlier run \({content}\): .*train\.overwrite=true"):
        check_output(in_output(tmp_path), None)
    assert [path.name for path in tmp_path.iterdir()] == [content]


def test_an_earlier_run_is_replaced_where_that_is_wanted(tmp_path: Path) -> None:
    """What is not of a run stays."""
    (tmp_path / "checkpoints" / "step-5").mkdir(parents=True)
    for name in ("metrics.jsonl", "notes.txt"):
        (tmp_path / name).write_text("earlier", encoding="utf-8")
    check_output(in_output(tmp_path, overwrite=True), None)
    start_output(in_output(tmp_path, overwrite=True), None)
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", CONFIG_NAME, LOGS_NAME}


def test_a_folder_with_other_files_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    check_output(in_output(tmp_path), None)
    start_output(in_output(tmp_path), None)
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "mine"


def writable(output: Path, trace: str = "") -> None:
    check_writable(Config(train=TrainConfig(output=str(output), trace=trace)))


def test_folders_that_can_be_made_are_writable_and_are_not_made(tmp_path: Path) -> None:
    writable(tmp_path / "new" / "run", str(tmp_path / "new" / "run" / "trace.json"))
    writable(tmp_path, str(tmp_path / "trace.json"))
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Nobody may write to /proc, not even root."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    for output in (tmp_path / "file" / "run", tmp_path / "file", Path("/proc/new/run"), tmp_path / ("n" * 300)):
        with pytest.raises(ConfigError, match=rf"train\.output = '{output}' cannot be written: .*choose another place"):
            writable(output)
    with pytest.raises(ConfigError, match=r"train\.trace = '/proc/new/x\.json' cannot be written: /proc: [^/]*; "):
        writable(tmp_path, "/proc/new/x.json")
    with pytest.raises(ConfigError, match=r"train\.prometheus = '/proc/metrics'"):
        check_writable(Config(train=TrainConfig(output=str(tmp_path), prometheus="/proc/metrics")))


@pytest.mark.parametrize("trace", ["/dev/null", "."])
def test_a_timeline_replaces_files_alone(tmp_path: Path, trace: str) -> None:
    with pytest.raises(ConfigError, match=rf"train\.trace = '{trace}': is no file"):
        writable(tmp_path, trace)


def test_an_output_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"train\.output = '.*file/run' cannot be written"):
        start_output(in_output(tmp_path / "file" / "run"), None)


def test_a_resumed_run_keeps_its_checkpoints_logs_and_metrics_so_far(tmp_path: Path) -> None:
    for step in (50, 100):
        write_checkpoint(tmp_path, sample_records((5, 3), 3), (5, 3), step=step)
    (tmp_path / LOGS_NAME).mkdir()
    (tmp_path / LOGS_NAME / "oracle-0.log").write_text("earlier", encoding="utf-8")
    (tmp_path / "summary.json").write_text("{}", encoding="utf-8")
    told = [("progress", 90), ("progress", 100), ("checkpoint", 100), ("evaluation", 100), ("progress", 110)]
    lines = [json.dumps({"event": event, "step": step}) + "\n" for event, step in told]
    (tmp_path / "metrics.jsonl").write_text("".join(lines) + '{"event": "prog', encoding="utf-8")
    config = in_output(tmp_path, resume=str(tmp_path / "checkpoints" / "step-00000100"))
    start = load_checkpoint(Path(config.train.resume))
    check_output(config, start)
    start_output(config, start, made_again=(40,))
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoints", "metrics.jsonl", LOGS_NAME, CONFIG_NAME}
    assert (tmp_path / "metrics.jsonl").read_text(encoding="utf-8") == "".join(lines[:3])
    assert (tmp_path / LOGS_NAME / "oracle-0.log").read_text(encoding="utf-8") == "earlier"
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_a_run_that_cannot_read_which_checkpoint_is_the_best_destroys_nothing(tmp_path: Path) -> None:
    steps = [write_checkpoint(tmp_path, sample_records((5, 3), 3), (5, 3), step=step) for step in (100, 200)]
    (tmp_path / CHECKPOINTS_FOLDER / BEST_NAME).write_text("{", encoding="utf-8")
    (tmp_path / "summary.json").write_text("{}", encoding="utf-8")
    (tmp_path / "metrics.jsonl").write_text('{"event": "progress", "step": 150}\n', encoding="utf-8")
    config, start = in_output(tmp_path, resume=str(steps[0]), overwrite=True), load_checkpoint(steps[0])
    with pytest.raises(CheckpointError, match=r"best\.json: is no JSON.*remove the file"):
        start_output(config, start)
    assert find_checkpoints(tmp_path) == steps
    assert (tmp_path / "summary.json").exists()
    assert (tmp_path / "metrics.jsonl").read_text(encoding="utf-8")


def test_checkpoints_that_a_run_goes_back_behind_are_not_kept_in_silence(tmp_path: Path) -> None:
    """`train.resume=auto` would go on from them, and evaluations would take them."""
    steps = [write_checkpoint(tmp_path, sample_records((5, 3), 3), (5, 3), step=step) for step in (100, 200, 300)]
    start = load_checkpoint(steps[0])
    said = r"train\.output holds later checkpoints \(step-00000200 to step-00000300\), .* or set train\.overwrite=true"
    with pytest.raises(ConfigError, match=said):
        check_output(in_output(tmp_path, resume=str(steps[0])), start)
    assert find_checkpoints(tmp_path) == steps
    config = in_output(tmp_path, resume=str(steps[0]), overwrite=True)
    check_output(config, start)
    start_output(config, start)
    assert find_checkpoints(tmp_path) == steps[:1]


def test_what_another_run_has_written_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """Between the checks of a run, which take minutes, and its lock; unless it may overwrite anyway."""
    config = in_output(tmp_path, resume="auto")
    training = Training(config)
    training._found = found = RunSoFar.of(config)
    require_untouched(config, found)
    step = write_checkpoint(tmp_path, sample_records((5, 3), 3), (5, 3), step=100)
    told = "another run has written there while this one was being prepared; start it again"
    with pytest.raises(ConfigError, match=told):
        require_untouched(config, found)
    run: Any = SimpleNamespace(config=config, start=None, evaluated_first=())
    with pytest.raises(ConfigError, match=told):
        training.start(run)
    assert find_checkpoints(tmp_path) == [step]
    require_untouched(in_output(tmp_path, overwrite=True), found)


def test_checkpoints_in_a_folder_of_their_own_are_not_the_runs_own(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "backup", sample_records((5, 3), 3), (5, 3), step=100)
    (tmp_path / "backup" / "checkpoints").rename(tmp_path / "kept")
    start = load_checkpoint(tmp_path / "kept" / "step-00000100")
    assert not is_own_checkpoint(in_output(tmp_path), start)
    (tmp_path / "kept").rename(tmp_path / "checkpoints")
    assert is_own_checkpoint(in_output(tmp_path), load_checkpoint(tmp_path / "checkpoints" / "step-00000100"))


def test_a_run_removes_a_request_to_stop_that_came_too_late(tmp_path: Path) -> None:
    """But not one that means an earlier run, of which nobody knows what became."""
    with hold_output(in_output(tmp_path), lambda _: None):
        request_stop(tmp_path)
    assert not (tmp_path / STOP_NAME).exists()
    (tmp_path / STOP_NAME).write_text("another lock")
    with hold_output(in_output(tmp_path), lambda _: None):
        pass
    assert (tmp_path / STOP_NAME).exists()


def test_a_resumed_run_removes_what_a_killed_one_was_writing(tmp_path: Path) -> None:
    """What its policy keeps of rows, of which it has written a part; what is whole stays."""
    write_checkpoint(tmp_path, sample_records((5, 3), 3), (5, 3), step=100)
    whole = memory_path(tmp_path, 90)
    save_memory(whole, {"weights": np.zeros(3)})
    (whole.parent / ".step-00000110.h5.4711.partial").write_bytes(b"half")
    (tmp_path / "checkpoints" / ".best.json.4711.partial").write_bytes(b"half")
    config = in_output(tmp_path, resume=str(tmp_path / "checkpoints" / "step-00000100"))
    start_output(config, load_checkpoint(Path(config.train.resume)))
    assert list(whole.parent.iterdir()) == [whole]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000100"]


def test_a_run_that_goes_on_from_before_the_best_checkpoint_forgets_that_it_was(tmp_path: Path) -> None:
    for step in (100, 200):
        write_checkpoint(tmp_path, sample_records((5, 3), 3), (5, 3), step=step)
    write_best(tmp_path / "checkpoints", Best(200, "auc", 0.75, 100))
    start_output(in_output(tmp_path), load_checkpoint(tmp_path / "checkpoints" / "step-00000200"))
    assert read_best(tmp_path / "checkpoints") is not None
    start_output(in_output(tmp_path), load_checkpoint(tmp_path / "checkpoints" / "step-00000100"))
    assert read_best(tmp_path / "checkpoints") is None


def test_a_checkpoint_of_another_run_does_not_open_the_folder_of_a_third(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path / "other", sample_records((5, 3), 3), (5, 3))
    (tmp_path / "third").mkdir()
    (tmp_path / "third" / "summary.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"holds an earlier run \(summary\.json\)"):
        check_output(in_output(tmp_path / "third", resume=str(directory)), load_checkpoint(directory))


def test_a_run_that_ended_before_its_first_checkpoint_starts_anew(tmp_path: Path) -> None:
    """Only where it was to be resumed, and only if it did not reach its end."""
    (tmp_path / "metrics.jsonl").write_text("", encoding="utf-8")
    check_output(in_output(tmp_path, resume="auto"), None)
    (tmp_path / "summary.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match="holds an earlier run"):
        check_output(in_output(tmp_path, resume="auto"), None)


@pytest.mark.parametrize("told", ["", "auto", "other"])
def test_a_job_that_comes_again_goes_on_with_what_it_has_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    """Whatever it was told to begin with; until it has saved something it begins with that."""
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    config = in_output(tmp_path / "run", resume=told and (told if told == "auto" else str(tmp_path / told)))
    start_output(config, None)
    assert requeued(config).train.resume == (config.train.resume if told == "other" else "auto")
    check_output(requeued(config), None, comes_again=True)
    start_output(config, None)  # as the next start does
    write_checkpoint(tmp_path / "run", sample_records((5, 3), 3), (5, 3), step=100)
    assert requeued(config).train.resume == "auto"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("earlier_job", ["", "16"])
def test_a_job_that_comes_again_before_its_run_began_starts_as_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier_job: str, overwrite: bool
) -> None:
    """It goes on with no run of another job, which it is to replace or to leave alone."""
    monkeypatch.setenv("SLURM_JOB_ID", earlier_job)
    start_output(in_output(tmp_path), None)
    write_checkpoint(tmp_path, sample_records((5, 3), 3), (5, 3), step=100)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    config = in_output(tmp_path, overwrite=overwrite)
    assert requeued(config) == config
    if overwrite:
        check_output(config, None, comes_again=True)
        start_output(config, None)
        assert find_checkpoints(tmp_path) == []
    else:
        with pytest.raises(ConfigError, match="holds an earlier run"):
            check_output(config, None, comes_again=True)


def test_a_run_outside_of_jobs_is_of_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_HET_JOB_ID", "16")
    start_output(in_output(tmp_path), None)
    assert (tmp_path / MARK_NAME).read_text(encoding="utf-8") == "16\n"
    for name in ("SLURM_JOB_ID", "SLURM_HET_JOB_ID"):
        monkeypatch.delenv(name)
    start_output(in_output(tmp_path), None)
    assert not (tmp_path / MARK_NAME).exists()
    assert requeued(in_output(tmp_path)) == in_output(tmp_path)


def test_a_folder_is_held_and_given_back(tmp_path: Path) -> None:
    config = in_output(tmp_path / "run")
    with hold_output(config, lambda: None):
        assert (tmp_path / "run" / LOCK_NAME).exists()
    assert not (tmp_path / "run" / LOCK_NAME).exists()


def test_a_link_to_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    """As of a scratch file system whose old folders are removed."""
    link = tmp_path / "runs"
    link.symlink_to(tmp_path / "purged")
    for output in (link, link / "new"):
        with pytest.raises(
            ConfigError, match=rf"cannot be written: {link} is a link to .*purged, which is not there; "
        ):
            writable(output)
    with pytest.raises(OutputError, match=rf"{link} is a link to .*purged, which is not there"), writing(link):
        link.mkdir(parents=True, exist_ok=True)
