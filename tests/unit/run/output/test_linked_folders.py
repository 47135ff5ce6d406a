"""Links in an output folder: checkpoints may lie elsewhere, and a new run removes no archive."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from bagpipe_hpc.config.schema import Config, TrainConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.preparation.warm_start import find_warm_start
from bagpipe_hpc.run.output.folder import LOGS_NAME, check_output, check_writable, is_own_checkpoint, start_output
from bagpipe_hpc.storage.checkpoints.best import Best, write_best
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoints.folder import find_checkpoints
from tests.unit.checkpoint_samples import sample_records, write_checkpoint
from tests.unit.resumed_runs import SHARDS
from tests.unit.run.output.test_folder import in_output


def linked_output(tmp_path: Path, where: str) -> Path:
    """An output folder with checkpoints of steps 100 and 200, one of them or all elsewhere."""
    output, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    for step in (100, 200):
        write_checkpoint(output, sample_records((5, 3), 3), (5, 3), step=step)
    moved = output / "checkpoints" if where == "checkpoints" else output / "checkpoints" / "step-00000200"
    moved.rename(elsewhere)
    moved.symlink_to(elsewhere)
    (output / "metrics.jsonl").write_text("", encoding="utf-8")
    return output


@pytest.mark.parametrize("where", ["checkpoints", "step"])
def test_checkpoints_behind_a_link_are_the_runs_own(tmp_path: Path, where: str) -> None:
    """As where they lie on a larger file system, or in an archive: a run goes on from them, and loses none."""
    output = linked_output(tmp_path, where)
    config = in_output(output, resume="auto")
    start = load_checkpoint(output)
    assert is_own_checkpoint(config, start)
    check_writable(config)
    check_output(config, start)
    start_output(config, start)
    assert [load_checkpoint(path).manifest.step for path in find_checkpoints(output)] == [100, 200]
    assert (output / "metrics.jsonl").exists()


@pytest.mark.parametrize("where", ["checkpoints", "step"])
def test_of_links_to_checkpoints_a_new_run_removes_no_archive(tmp_path: Path, where: str) -> None:
    """It replaces those of its own folder, on whichever file system that is; the link to that folder stays."""
    output = linked_output(tmp_path, where)
    kept = tmp_path / "elsewhere" / ("mine.txt" if where == "checkpoints" else "manifest.json")
    if where == "checkpoints":
        kept.write_text("not of the run", encoding="utf-8")
        write_best(output / "checkpoints", Best(200, "auc", 0.75, 100))
        (output / "checkpoints" / "step-00000300.partial").mkdir()
    config = in_output(output, overwrite=True)
    check_output(config, None)
    start_output(config, None)
    assert kept.exists()
    assert find_checkpoints(output) == []
    if where == "checkpoints":
        assert list((output / "checkpoints").iterdir()) == [output / "checkpoints" / "mine.txt"]
        assert (output / "checkpoints").is_symlink()
    else:
        assert load_checkpoint(tmp_path / "elsewhere").manifest.step == 200
        assert not (output / "checkpoints").exists()


def test_a_folder_behind_a_link_is_no_earlier_run_while_it_is_empty(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "scratch")
    check_output(in_output(tmp_path / "run"), None)
    write_checkpoint(tmp_path / "run", sample_records((5, 3), 3), (5, 3))
    with pytest.raises(ConfigError, match=r"holds an earlier run \(checkpoints\)"):
        check_output(in_output(tmp_path / "run"), None)


@pytest.mark.parametrize("kind", ["gone", "a file"])
def test_a_link_for_checkpoints_that_leads_to_no_folder_is_named(tmp_path: Path, kind: str) -> None:
    """Before a run trains for hours until its first checkpoint."""
    if kind == "a file":
        (tmp_path / "purged").write_text("", encoding="utf-8")
    (tmp_path / "checkpoints").symlink_to(tmp_path / "purged")
    with pytest.raises(ConfigError, match=r"train\.output = .* cannot be written: .*(is a link to|Not a directory)"):
        check_writable(in_output(tmp_path))


def test_other_links_are_removed_and_not_what_they_lead_to(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "oracle-0.log").write_text("earlier", encoding="utf-8")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOGS_NAME).symlink_to(tmp_path / "elsewhere")
    start_output(in_output(tmp_path / "run", overwrite=True), None)
    assert not (tmp_path / "run" / LOGS_NAME).is_symlink()
    assert (tmp_path / "elsewhere" / "oracle-0.log").exists()


def test_nor_is_what_it_builds_on(tmp_path: Path) -> None:
    """Where that is reached by a link to one of the folder's own checkpoints, which lie elsewhere themselves."""
    output, other = linked_output(tmp_path, "checkpoints"), tmp_path / "other"
    base = write_checkpoint(other, sample_records((5, 3), 3), (5, 3), step=100)
    start = write_checkpoint(other, sample_records((5, 3), 3), (5, 3), step=150, base=base, updated=np.array([1]))
    shutil.rmtree(tmp_path / "elsewhere" / base.name)
    base.rename(tmp_path / "elsewhere" / base.name)
    base.symlink_to(tmp_path / "elsewhere" / base.name)
    config = in_output(output, resume=str(start), overwrite=True)
    with pytest.raises(ConfigError, match=rf"lies in {output}/checkpoints/{base.name}, which this run would replace"):
        check_output(config, load_checkpoint(start))


@pytest.mark.parametrize("way", ["nested", "a link in it", "through a link"])
def test_what_a_run_goes_on_from_is_not_removed_by_it(tmp_path: Path, way: str) -> None:
    """Where it lies in the output folder, yet is none of its checkpoints; `train.overwrite` says nothing of it."""
    output = tmp_path / "run"
    step = write_checkpoint(output, sample_records((5, 3), 3), (5, 3), step=100)
    (output / "checkpoints" / "keep").mkdir()
    named = output / "checkpoints" / "keep" / step.name
    if way == "a link in it":
        step.rename(tmp_path / step.name)
        named.symlink_to(tmp_path / step.name)
    else:
        step.rename(named)
    if way == "through a link":
        (tmp_path / "other").symlink_to(named.parent)
        named = tmp_path / "other" / step.name
    start = load_checkpoint(named)
    for overwrite in (False, True):
        config = in_output(output, resume=str(named), overwrite=overwrite)
        with pytest.raises(ConfigError, match=rf"train\.resume = '{named}': .* lies in {output}/checkpoints, which"):
            check_output(config, start)
    assert load_checkpoint(named).manifest.step == 100


def test_nor_are_the_weights_that_it_begins_with(tmp_path: Path) -> None:
    step = write_checkpoint(tmp_path, sample_records((5, 3), 3), (5, 3))
    (tmp_path / "logs").mkdir()
    step.rename(tmp_path / "logs" / "model")
    train = TrainConfig(output=str(tmp_path), overwrite=True, warm_start=str(tmp_path / "logs" / "model"))
    with pytest.raises(ConfigError, match=r"train\.warm_start = .*logs/model lies in .*logs, which this run would rep"):
        find_warm_start(Config(train=train), SHARDS)
