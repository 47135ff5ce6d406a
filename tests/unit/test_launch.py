"""How a rank's part of a run ends when it is interrupted or fails."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from bagpipe_hpc import launch
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.exit_codes import EXIT_INTERRUPTED
from bagpipe_hpc.preparation.training import Training
from bagpipe_hpc.run.purpose import Purpose
from bagpipe_hpc.step.slice_step import Loop, Session
from bagpipe_hpc.tools.doctor import doctor
from bagpipe_hpc.tools.scoring.predict import Predicting
from tests.unit.preparation.test_prepare import write_clicks

NO_CHECKPOINT: Any = None


class EndedError(Exception):
    """In place of the end of the job."""


@pytest.mark.parametrize(
    ("purpose", "told"),
    [
        (Training(Config()), "interrupted; train.resume=auto goes on from the newest checkpoint"),
        (Predicting(Config(), NO_CHECKPOINT, [], Path("predictions")), "interrupted"),
    ],
    ids=["training", "predicting"],
)
def test_an_interrupted_run_says_how_to_go_on_if_it_can(
    purpose: Purpose, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Predictions are made anew: nothing of them is kept."""

    def interrupt(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    def end(message: str, code: int) -> NoReturn:
        raise EndedError(message, code)

    noted: list[str] = []
    monkeypatch.setattr(launch, "find_places", interrupt)
    monkeypatch.setattr(launch, "abort_job", end)
    monkeypatch.setattr(launch, "note_failure", noted.append)
    with pytest.raises(EndedError) as ended:
        launch.run_role(purpose)
    assert ended.value.args == (f"bagpipe: rank 0 of 1: {told}", EXIT_INTERRUPTED)
    assert noted == [f"bagpipe: rank 0 of 1: {told}"]


def ends_at_once(session: Session) -> None:
    """Leave all slices but the first."""
    next(iter(session))


def fails(session: Session) -> None:
    """Fail in the user's own code."""
    raise ValueError(f"no idea of {session.trainers} trainer")


def is_interrupted(_: Session) -> None:
    """As by Ctrl-C while a step is computed."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("loop", "error", "told"),
    [
        (ends_at_once, ConfigError, "bagpipe: failed: the training loop ended before"),
        (fails, ValueError, "bagpipe: failed: ValueError('no idea of 1 trainer')"),
        (is_interrupted, KeyboardInterrupt, "bagpipe: interrupted; train.resume=auto goes on from the newest"),
    ],
)
def test_what_ends_a_run_of_one_rank_ends_its_log(
    loop: Loop, error: type[BaseException], told: str, tmp_path: Path
) -> None:
    """As it does on several ranks; of an error that is none of the program's kinds with the traceback."""
    config = write_clicks(tmp_path)
    with pytest.raises(error):
        launch.run_alone(Training(config), loop)
    log = (Path(config.train.output) / "logs" / "reference.log").read_text(encoding="utf-8")
    ended = log.partition(" ERROR ")[2]
    assert told in ended
    assert ("Traceback" in ended) == (error is ValueError)


def test_a_run_of_one_rank_is_examined_first_if_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one of several ranks; the folder of a run that would fail is not begun."""
    config = write_clicks(tmp_path)
    asked = replace(config, train=replace(config.train, preflight=True))

    def refuse(output: Path, timeout_s: float, *, look_for_gpus: bool) -> NoReturn:
        raise ConfigError(f"train.preflight: {output}, {timeout_s}, {look_for_gpus}")

    monkeypatch.setattr(doctor, "require_healthy", refuse)
    with pytest.raises(ConfigError, match=rf"train\.preflight: {config.train.output}, 300.0, True"):
        launch.run_alone(Training(asked))
    assert not Path(config.train.output).exists()
    monkeypatch.setattr(doctor, "require_healthy", lambda *_, **__: ["healthy"])
    with pytest.raises(ValueError, match="no idea"):
        launch.run_alone(Training(asked), fails)
    assert "preflight: healthy" in capsys.readouterr().err
