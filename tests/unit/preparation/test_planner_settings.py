"""Settings of the native planner are said to be without effect where another one plans."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from bagpipe_hpc.config.schema import Config, KernelsConfig, PolicyConfig
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.planning.policies.hotline.settings import HotlineSettings
from bagpipe_hpc.preparation.prepare import choose_window, prepare_run
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
