"""A sweep's runs are all combinations of the values, each valid, told apart and with a folder of its own."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.config import sweep
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.config.sweep import split_values, sweep_run, sweep_runs
from bagpipe_hpc.config.values import toml_value
from bagpipe_hpc.errors import ConfigError


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text('train.output = "out"\n')
    return path


def refusal(path: Path, *settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        sweep_runs(path, settings)
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("1,2", ["1", "2"]),
        ("1, 2 ,3", ["1", "2", "3"]),
        ("[64, 16],[8]", ["[64, 16]", "[8]"]),
        ("{ momentum = 0.9, betas = [0.9, 0.99] }, {}", ["{ momentum = 0.9, betas = [0.9, 0.99] }", "{}"]),
        ('"a,b",\'c,"\'', ['"a,b"', "'c,\"'"]),
        (r'"say \",\"",b', [r'"say \",\""', "b"]),
        ('["],",[","]],c', ['["],",[","]]', "c"]),
        ("anna's,ben's", ["anna's", "ben's"]),
        ("a[1,b]2", ["a[1", "b]2"]),
        ("a],b", ["a]", "b"]),
        ("1,", ["1", ""]),
        ("", [""]),
    ],
)
def test_commas_part_values_where_they_are_not_within_one(written: str, values: list[str]) -> None:
    assert split_values(written) == values


plain = st.integers() | st.booleans() | st.text(alphabet="ab,[]{}\"'\\= ", max_size=8)
nested = st.recursive(
    plain, lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text("xy,]"), part, max_size=2)
)


@given(st.lists(nested, min_size=1, max_size=4))
def test_any_values_of_toml_are_parted_again(values: list[object]) -> None:
    written = [toml_value(value) for value in values]
    assert split_values(",".join(written)) == written


def test_the_last_setting_changes_fastest_and_each_run_has_a_folder(run_file: Path) -> None:
    runs = sweep_runs(run_file, ["train.seed=1,2", "optimizer.rows=sgd", "model.top_mlp=[64, 16],[8]"])
    assert runs == [
        [f"train.seed={seed}", "optimizer.rows=sgd", f"model.top_mlp={mlp}", f"train.output=out/{folder}"]
        for seed, mlp, folder in [
            (1, "[64, 16]", "train.seed=1,model.top_mlp=64-16"),
            (1, "[8]", "train.seed=1,model.top_mlp=8"),
            (2, "[64, 16]", "train.seed=2,model.top_mlp=64-16"),
            (2, "[8]", "train.seed=2,model.top_mlp=8"),
        ]
    ]
    config = load_config(run_file, runs[1])
    assert (config.train.seed, config.model.settings.top_mlp) == (1, (8,))
    assert config.train.output == "out/train.seed=1,model.top_mlp=8"


def test_a_given_folder_holds_those_of_the_runs(run_file: Path) -> None:
    assert sweep_runs(run_file, ["train.output='my runs'", "train.seed=1,2"]) == [
        ["train.seed=1", "train.output=my runs/train.seed=1"],
        ["train.seed=2", "train.output=my runs/train.seed=2"],
    ]


def test_one_run_keeps_its_folder(run_file: Path) -> None:
    assert sweep_runs(run_file, ["train.seed=3"]) == [["train.seed=3", "train.output=out"]]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["train.sed=1,2"], ["run 0 (train.sed=1)", "did you mean train.seed?"]),
        (["train.seed=1,many"], ["run 1 (train.seed=many)", "use a whole number"]),
        (["train.seed=1,"], ["run 1", "use a whole number"]),
        (["lookahead.group=30", "lookahead.batches=40,20"], ["run 1", "lookahead.group = 30", "= 19"]),
        (["train.seed=1", "train.seed=2,3"], ["run 0", "overridden twice"]),
        (["train.seed"], ["has no value"]),
        (["train.seed=1,1,2"], ["train.seed: runs with 2 of its values would write to one folder, train.seed=1"]),
        (["train.seed=1,2", "data.path=a/b,a b"], ["data.path: runs with 2", "data.path=a-b", "special characters"]),
        (["train.output=a,b"], ["train.output takes one folder"]),
        (["model.top_mlp=[8,\n4]"], ["line break"]),
    ],
)
def test_a_mistake_in_any_run_is_refused(run_file: Path, settings: list[str], words: list[str]) -> None:
    message = refusal(run_file, *settings)
    assert all(word in message for word in words), message


def test_a_task_gets_its_run_after_a_look_at_each_value_but_not_at_each_combination(
    run_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ["train.seed=1,2,3", "data.lanes=1,2", "lookahead.batches=40,20"]
    runs = sweep_runs(run_file, settings)
    read: list[Sequence[str]] = []

    def load(path: Path, overrides: Sequence[str]) -> Config:
        read.append(overrides)
        return load_config(path, overrides)

    monkeypatch.setattr(sweep, "load_config", load)
    assert [sweep_run(run_file, settings, number) for number in range(12)] == runs
    assert len(read) == 12 * 2 * (1 + 2 + 1 + 1)
    with pytest.raises(ConfigError, match=r"^run 3 \(train\.seed=many data\.lanes=2\)"):
        sweep_run(run_file, ["train.seed=1,many", "data.lanes=1,2"], 1)
    with pytest.raises(ConfigError, match=r"would write to one folder, train\.seed=1"):
        sweep_run(run_file, ["train.seed=1,2,1"], 1)
    with pytest.raises(ConfigError, match="--task 2: the sweep has 2 runs, 0 to 1"):
        sweep_run(run_file, ["train.seed=1,2"], 2)


def test_more_runs_than_anybody_would_wait_for_are_refused(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number is that of all combinations: to check ten million takes hours."""
    settings = ["train.seed=1,2", "data.lanes=1,2"]
    monkeypatch.setattr(sweep, "_MOST_RUNS", 4)
    assert len(sweep_runs(run_file, settings)) == 4
    monkeypatch.setattr(sweep, "_MOST_RUNS", 3)
    with pytest.raises(ConfigError, match="the sweep has 4 runs, 3 at most: leave values out"):
        sweep_runs(run_file, settings)


def test_a_folder_that_would_divide_an_override_is_refused(run_file: Path) -> None:
    """A task of slurm/sweep.sh reads its overrides one a line."""
    run_file.write_text('train.output = "two\\nlines"\n')
    assert "run 0 (train.seed=1): train.output = 'two\\nlines': holds a line break" in refusal(
        run_file, "train.seed=1,2"
    )


def test_a_name_that_no_file_system_takes_is_refused(run_file: Path) -> None:
    numbers = ",".join(map(str, range(1000, 1047)))
    wide = f"model.top_mlp=[{numbers},100000]"
    assert len(Path(load_config(run_file, sweep_runs(run_file, [f"{wide},[8]"])[0]).train.output).name) == 255
    wider = f"model.top_mlp=[{numbers},1000000]"
    with pytest.raises(
        ConfigError, match=r"^run 0 \(.*\): its folder would be called model\.top_mlp=1000-1001.*, 256 bytes of 255 th"
    ):
        sweep_runs(run_file, [f"{wider},[8]"])
    assert len(sweep_runs(run_file, [wider])) == 1


@pytest.mark.parametrize(
    ("folder", "told"),
    [("'a'/b", "is not TOML"), ("'a'", "an override would name 'a'"), ("a ", "an override would name 'a'")],
)
def test_a_folder_of_the_file_that_no_override_can_name_is_refused(run_file: Path, folder: str, told: str) -> None:
    run_file.write_text(f'train.output = "{folder}"\n')
    assert told in refusal(run_file, "train.seed=1")
