"""How a rank's part of a run ends when something interrupts it."""

from pathlib import Path
from typing import Any, NoReturn

import pytest

from bagpipe_hpc import launch
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.preparation.training import Training
from bagpipe_hpc.run.purpose import Purpose
from bagpipe_hpc.tools.scoring.predict import Predicting

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

    monkeypatch.setattr(launch, "find_places", interrupt)
    monkeypatch.setattr(launch, "abort_job", end)
    with pytest.raises(EndedError) as ended:
        launch.run_role(purpose)
    assert ended.value.args == (f"bagpipe: rank 0 of 1: {told}", launch.EXIT_INTERRUPTED)
