"""The output folder of a run: what lies in it, and how it is started without losing an earlier run by accident."""

import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bagpipe_hpc.config.file import to_toml
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import ConfigError, refused
from bagpipe_hpc.run.output.job_mark import MARK_NAME, is_of_this_job, mark_job
from bagpipe_hpc.run.output.stop_request import forget_stop
from bagpipe_hpc.storage.atomic_write import atomic_write, remove_partial_files
from bagpipe_hpc.storage.checkpoints.best import BEST_NAME, forget_best_after
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint
from bagpipe_hpc.storage.checkpoints.folder import (
    CHECKPOINTS_FOLDER,
    find_checkpoints,
    remove_checkpoints,
    remove_partial_checkpoints,
    step_of,
)
from bagpipe_hpc.storage.output_errors import require_writable, writing
from bagpipe_hpc.storage.policy_memory import SEEN_FOLDER
from bagpipe_hpc.storage.run_lock import RunLock
from bagpipe_hpc.telemetry.metrics_file import METRICS_NAME, SUMMARY_NAME, cut_metrics
from bagpipe_hpc.telemetry.status.status_file import STATUS_FOLDER

CONFIG_NAME = "config.toml"
RESOURCES_NAME = "resources.json"
LOGS_NAME = "logs"
TENSORBOARD_NAME = "tensorboard"
AUTO = "auto"
"""`train.resume`: from the newest checkpoint of the output folder."""
_RUN_CONTENT = (
    CONFIG_NAME,
    METRICS_NAME,
    SUMMARY_NAME,
    RESOURCES_NAME,
    LOGS_NAME,
    CHECKPOINTS_FOLDER,
    SEEN_FOLDER,
    STATUS_FOLDER,
    TENSORBOARD_NAME,
    MARK_NAME,  # the last to be removed: until then the job that began the run knows it
)


def check_writable(config: Config) -> None:
    """See that the output folder, and the timeline's if one is wanted, can be written. Makes nothing.

    Raises:
        ConfigError: one cannot.
    """
    output = Path(config.train.output)
    for folder in (output, output / CHECKPOINTS_FOLDER):  # which may be a link to another file system
        require_writable("train.output", config.train.output, folder)
    check_trace(config)
    check_prometheus(config)


def check_trace(config: Config) -> None:
    """See that the timeline can be written, if one is wanted.

    Raises:
        ConfigError: it cannot.
    """
    if config.train.trace:
        trace = Path(config.train.trace)
        if trace.exists() and not trace.is_file():  # a device would be replaced by a file
            raise ConfigError(f"train.trace = {config.train.trace!r}: is no file; name one, such as output/trace.json")
        require_writable("train.trace", config.train.trace, trace.parent)


def check_prometheus(config: Config) -> None:
    """See that the folder for Prometheus can be written, or made, if one is wanted.

    Raises:
        ConfigError: it cannot.
    """
    if config.train.prometheus:
        require_writable("train.prometheus", config.train.prometheus, Path(config.train.prometheus))


def requeued(config: Config) -> Config:
    """The settings of a Slurm job's later start: it goes on from what an earlier one has saved.

    Where none has begun the run, they stay as they are: `train.overwrite` may still have another run to replace. So
    they do where none has saved a checkpoint and `train.resume` names one to begin with.
    """
    output = Path(config.train.output)
    if not is_of_this_job(output) or (config.train.resume and not find_checkpoints(output)):
        return config
    return replace(config, train=replace(config.train, resume=AUTO))


def check_output(config: Config, start: Checkpoint | None, *, comes_again: bool = False) -> None:
    """See that no earlier run is in the way, nor checkpoints that would count as the newest of this one.

    Args:
        config: of the run.
        start: what it goes on from. Where that is a checkpoint of the output folder, the earlier run is this one. Nor
            is a run in the way that ended before its first checkpoint, if it was to be resumed.
        comes_again: whether this is a later start of a Slurm job: nor is a run of an earlier one that ended so.

    Raises:
        ConfigError: the output folder holds one, and may not be overwritten; or what the run goes on from lies where it
            would be removed.
    """
    if start is not None and is_own_checkpoint(config, start):
        if (left := _left_behind(config, start)) and not config.train.overwrite:
            raise ConfigError(
                f"train.resume = {config.train.resume!r}: train.output holds later checkpoints ({left[0].name} to "
                f"{left[-1].name}), which train.resume=auto and others would take for this run's: use another "
                "train.output, or set train.overwrite=true to remove them"
            )
        return
    if start is not None:
        for layer in start.layers():
            require_kept(config, "train.resume", config.train.resume, layer.directory)
    earlier = _earlier_run(config)
    output = Path(config.train.output)
    was_to_go_on = config.train.resume == AUTO or (comes_again and is_of_this_job(output))
    was_cut_short = was_to_go_on and not (output / SUMMARY_NAME).exists()
    if earlier and not config.train.overwrite and not was_cut_short:
        raise ConfigError(
            f"train.output = {config.train.output!r} holds an earlier run ({earlier[0].name}): "
            "choose another folder, or set train.overwrite=true to replace it"
        )


class RunSoFar(NamedTuple):
    """What an output folder holds of a run, as far as a run that starts there goes by it."""

    checkpoints: tuple[Path, ...]
    has_metrics: bool
    has_summary: bool

    @classmethod
    def of(cls, config: Config) -> "RunSoFar":
        """As it is now."""
        output = Path(config.train.output)
        there = ((output / name).exists() for name in (METRICS_NAME, SUMMARY_NAME))
        return cls(tuple(find_checkpoints(output)), *there)


def require_untouched(config: Config, found: RunSoFar) -> None:
    """See that nobody has written to the output folder since it was looked at, now that others are kept out of it.

    Raises:
        ConfigError: somebody has, and what is there may not be overwritten.
    """
    if not config.train.overwrite and RunSoFar.of(config) != found:
        raise ConfigError(
            f"train.output = {config.train.output!r}: another run has written there while this one was being prepared; "
            "start it again, which then goes by what is there now"
        )


def is_own_checkpoint(config: Config, start: Checkpoint | None) -> bool:
    """Whether a checkpoint is one of the run's own output folder, be that a link, or hold a link to it."""
    own = Path(config.train.output) / CHECKPOINTS_FOLDER
    if start is None or not own.is_dir():
        return False
    return any(place.parent.samefile(own) for place in (start.directory.absolute(), start.directory.resolve()))


def require_kept(config: Config, key: str, value: str, directory: Path) -> None:
    """See that a run that starts anew does not remove a folder that it begins with.

    Args:
        config: of the run.
        key: the setting that names the folder, for messages.
        value: what that says.
        directory: the folder.

    Raises:
        ConfigError: it lies in what `start_output` removes.
    """
    for path in _removed(config):
        is_below = directory.absolute().is_relative_to(path.absolute())
        if is_below or (not path.is_symlink() and directory.resolve().is_relative_to(path.resolve())):
            raise ConfigError(
                f"{key} = {value!r}: {directory} lies in {path}, which this run would replace; set another "
                "train.output, or copy the checkpoint to another folder"
            )


def _removed(config: Config) -> Iterator[Path]:
    """Files and folders that a run removes which starts anew."""
    for path in _earlier_run(config):
        if _is_linked_checkpoints(path):
            yield from find_checkpoints(path.parent)
        else:
            yield path


def _is_linked_checkpoints(path: Path) -> bool:
    """Whether it is a link by which the checkpoints of a run lie elsewhere, as on a larger file system."""
    return path.name == CHECKPOINTS_FOLDER and path.is_symlink()


def _left_behind(config: Config, start: Checkpoint) -> list[Path]:
    """Checkpoints of steps that a run trains once more, the newest last."""
    return [path for path in find_checkpoints(Path(config.train.output)) if step_of(path) > start.manifest.step]


def _unwritable(config: Config, error: OSError) -> ConfigError:
    why = refused(error, None if error.filename else Path(config.train.output))
    return ConfigError(f"train.output = {config.train.output!r} cannot be written: {why}")


@contextmanager
def hold_output(config: Config, lost: Callable[[str], None]) -> Iterator[None]:
    """Make the output folder and keep other runs out of it during the body.

    Args:
        config: of the run.
        lost: called with the reason, in another thread, if another run has taken the folder, because this one stood
            still for a minute, or may take it soon.

    Raises:
        ConfigError: another run uses it, or it cannot be written.
    """
    output = Path(config.train.output)
    lock = RunLock(output, lost)
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock.take()
    except OSError as error:
        raise _unwritable(config, error) from error
    try:
        yield
    finally:
        forget_stop(output)  # one that came too late
        lock.release()


def start_output(config: Config, start: Checkpoint | None, *, made_again: Collection[int] = ()) -> None:
    """Make the output folder, and put the resolved configuration there.

    Of an earlier run nothing stays, unless this run goes on from one of its checkpoints: then its logs do, and its
    checkpoints and metrics up to that step. Comes after all that could refuse the run, so that a refused one destroys
    nothing.

    Args:
        config: of the run.
        start: what it goes on from.
        made_again: test rows of the evaluations of that which it makes before it trains; others of its step stay.

    Raises:
        ConfigError: the folder cannot be written.
    """
    output = Path(config.train.output)
    try:
        if start is not None and is_own_checkpoint(config, start):
            forget_best_after(output / CHECKPOINTS_FOLDER, start.manifest.step)  # first: it may refuse the run
            for name in (SUMMARY_NAME, RESOURCES_NAME):
                (output / name).unlink(missing_ok=True)
            shutil.rmtree(output / STATUS_FOLDER, ignore_errors=True)  # there may be fewer ranks now
            cut_metrics(output / METRICS_NAME, start.manifest.step, made_again)
            remove_partial_checkpoints(output)
            for folder in (CHECKPOINTS_FOLDER, SEEN_FOLDER):
                remove_partial_files(output / folder)
            remove_checkpoints(_left_behind(config, start))
        else:
            remove_checkpoints(find_checkpoints(output))  # manifests first: what is left of a cut removal is none
            for path in _earlier_run(config):
                _remove(path)
        output.mkdir(parents=True, exist_ok=True)
        mark_job(output)  # nothing else is there yet of a new run, and nothing any more of an earlier one
        (output / LOGS_NAME).mkdir(exist_ok=True)
        _write_config(config)
    except OSError as error:
        raise _unwritable(config, error) from error


def _remove(path: Path) -> None:
    """Remove what is of an earlier run; of a link the link alone, but for one by which checkpoints lie elsewhere."""
    if _is_linked_checkpoints(path):
        remove_partial_checkpoints(path.parent)
        remove_partial_files(path)
        (path / BEST_NAME).unlink(missing_ok=True)
    elif path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def record_config(config: Config) -> None:
    """Put the resolved configuration in the output folder, in place of an earlier one.

    Raises:
        OutputError: it cannot be written.
    """
    with writing(Path(config.train.output) / CONFIG_NAME):
        _write_config(config)


def _write_config(config: Config) -> None:
    with atomic_write(Path(config.train.output) / CONFIG_NAME) as path:
        path.write_text(to_toml(config), encoding="utf-8")


def _earlier_run(config: Config) -> list[Path]:
    output = Path(config.train.output)
    paths = [output / name for name in _RUN_CONTENT if (output / name).exists()]
    return [path for path in paths if not _is_linked_checkpoints(path) or any(path.iterdir())]
