"""Overrides are found wherever they stand, and the values of options stay with their options."""

import argparse

import pytest

from bagpipe_hpc.cli.arguments.order import positionals_first


def options() -> list[argparse.Action]:
    parser = argparse.ArgumentParser()
    parser.add_argument("run_path")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--save")
    parser.add_argument("--trainers", nargs="+", type=int)
    parser.add_argument("--task", type=int)
    parser.add_argument("--quick", action="store_true")
    return [action for action in parser._actions if action.option_strings]


@pytest.mark.parametrize(
    ("given", "ordered"),
    [
        ("run.toml train.seed=1 --rows 5", "run.toml train.seed=1 --rows 5"),
        ("run.toml --rows 5 train.seed=1", "run.toml train.seed=1 --rows 5"),
        ("run.toml --rows=5 train.seed=1 --quick data.path=x", "run.toml train.seed=1 data.path=x --rows=5 --quick"),
        ("train.seed=1 run.toml model.top_mlp=[8]", "run.toml train.seed=1 model.top_mlp=[8]"),
        ("model.layer2=1 model.hiddenWidth=8 run.toml", "run.toml model.layer2=1 model.hiddenWidth=8"),
        ("--rows 5 train.seed=1 run.toml", "run.toml train.seed=1 --rows 5"),
        ("run.toml --trainers 1 2 train.seed=1 --rows 5", "run.toml train.seed=1 --trainers 1 2 --rows 5"),
        ("run.toml --train 1 2 train.seed=1", "run.toml train.seed=1 --train 1 2"),
        ("run.toml --task -1 train.seed=1", "run.toml train.seed=1 --task -1"),
        ("--save train.seed=1 run.toml", "run.toml --save train.seed=1"),
        ("train.seed=1", "train.seed=1"),
        ("train.seed=1 data.path=x", "train.seed=1 data.path=x"),
        ("run.toml trian=1 --rows 5 train.seed", "run.toml trian=1 train.seed --rows 5"),
        ("run.toml -- --rows 5", "run.toml -- --rows 5"),
        ("run.toml --unknown train.seed=1", "run.toml train.seed=1 --unknown"),
        ("", ""),
    ],
)
def test_order(given: str, ordered: str) -> None:
    assert positionals_first(options(), given.split()) == ordered.split()
