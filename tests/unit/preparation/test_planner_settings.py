"""Before a run plans, the log names what will have no effect: settings of another planner, what a policy says."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from bagpipe_hpc.config.schema import Config, KernelsConfig, PolicyConfig
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.planning.policies.hotline.settings import HotlineSettings
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.preparation.window_choice import choose_window
from tests.unit.preparation.test_prepare import write_clicks

HOTLINE = PolicyConfig("hotline", HotlineSettings(hot_rows=5, learning_batches=1))


def told(config: Config, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        choose_window(prepare_run(config), trainers=2)
    return caplog.messages


def test_they_are_for_the_native_planner(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = write_clicks(tmp_path)
    asked = replace(config, kernels=KernelsConfig(planner_state="sparse", planner_threads=1))
    state, threads = told(replace(asked, policy=HOTLINE), caplog)
    assert state.startswith("kernels.planner_state = 'sparse': without effect, since it is for the native planner")
    assert threads.startswith("kernels.planner_threads = 1: without effect")
    assert "policy.name = 'hotline'" in state
    reference = KernelsConfig(backend="reference", planner_threads=1)
    assert len(told(replace(config, kernels=reference), caplog)) == 1
    if shared_library.is_built("planner"):
        assert not told(asked, caplog)
    assert not told(replace(config, policy=HOTLINE), caplog)


def test_what_a_policy_says_of_the_run_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The run has five batches of training."""
    config = write_clicks(tmp_path)
    for learning, count in ((4, 0), (5, 1)):
        policy = PolicyConfig("hotline", HotlineSettings(hot_rows=5, learning_batches=learning))
        found = told(replace(config, policy=policy), caplog)
        assert len(found) == count
        assert all("5 batches between these at most, so no row is ever hot" in text for text in found)
