"""A run of tests with a deadline skips what it does not reach, and says how much that is."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.deadline import REASON, VARIABLE
from tests.ranks import ROOT

CONFTEST = """\
import pytest
from tests.deadline import Deadline


def pytest_configure(config):
    if deadline := Deadline.of(config):
        config.pluginmanager.register(deadline)
"""
TESTS = """\
import os
import time

import pytest


@pytest.fixture(scope="module")
def prepared():
    time.sleep({preparation_s})


@pytest.mark.parametrize("number", [1, 2])
def test_something(prepared, number):
    assert "{variable}" not in os.environ, "a pytest that a test starts has time of its own"
    with open("order.txt", "a", encoding="utf-8") as file:
        file.write("{name} ")
"""


def run_tests(folder: Path, *options: str, preparation_s: float, deadline: int) -> tuple[str, list[str]]:
    """Run two tests in each of three files; the end of pytest's output, and the files in the order of their tests."""
    (folder / "conftest.py").write_text(CONFTEST)
    for name in "abc":
        text = TESTS.format(variable=VARIABLE, name=name, preparation_s=preparation_s)
        (folder / f"test_{name}.py").write_text(text)
    environment = os.environ | {"PYTHONPATH": str(ROOT), VARIABLE: str(deadline)}
    command = [sys.executable, "-m", "pytest", "-rs", "-c", os.devnull, "--rootdir=.", *options]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    order = folder / "order.txt"
    return ended.stdout, order.read_text().split() if order.exists() else []


@pytest.mark.parametrize("options", [(), ("-n2", "--dist=loadfile")])
def test_what_is_not_reached_is_skipped_without_its_fixtures(options: tuple[str, ...], tmp_path: Path) -> None:
    output, order = run_tests(tmp_path, *options, preparation_s=60, deadline=int(time.time()) - 1)
    assert (order, output.count(REASON)) == ([], 1)
    assert "6 skipped" in output


def test_what_is_reached_is_run(tmp_path: Path) -> None:
    options = "-n2", "--dist=loadfile", "--no-loadscope-reorder"
    output, order = run_tests(tmp_path, *options, preparation_s=0, deadline=int(time.time()) + 600)
    assert "6 passed" in output
    assert sorted(order) == [*"aabbcc"]


def test_each_run_begins_with_another_file(tmp_path: Path) -> None:
    first = int(time.time()) + 600
    first -= first % 3
    orders = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        orders.append(run_tests(tmp_path / str(number), preparation_s=0, deadline=first + number)[1])
    assert orders == [[*"aabbcc"], [*"bbccaa"]]
