"""A configuration is read exactly, or refused with file, key, value and cure."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bagpipe_hpc.config.checks import MOST_THREADS
from bagpipe_hpc.config.doors import ROW_OPTIMIZERS
from bagpipe_hpc.config.file import load_config, setting_types, to_document, to_toml
from bagpipe_hpc.config.models import MOST_WIDTH, DLRMSettings
from bagpipe_hpc.config.schema import (
    CacheConfig,
    Config,
    DataConfig,
    DebugConfig,
    LookaheadConfig,
    ModelConfig,
    OptimizerConfig,
    RolesConfig,
    TrainConfig,
)
from bagpipe_hpc.config.sections.data import VERIFY_LEVELS
from bagpipe_hpc.config.sections.execution import MOST_TRAINERS, ROLE_PLACEMENTS
from bagpipe_hpc.config.sections.train import DEVICES
from bagpipe_hpc.config.values import toml_value
from bagpipe_hpc.errors import ConfigError
from tests.drawing import share_of


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.touch()
    return path


def load_text(folder: Path, text: str, *overrides: str) -> Config:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return load_config(path, overrides)


def refusal(folder: Path, text: str, *overrides: str) -> str:
    """The message with which a configuration is refused."""
    with pytest.raises(ConfigError) as caught:
        load_text(folder, text, *overrides)
    return str(caught.value)


def test_an_empty_file_is_all_defaults(empty: Path) -> None:
    assert load_config(empty) == Config()


def test_a_file_replaces_what_it_names(tmp_path: Path) -> None:
    text = """
        [train]
        batch_size = 512
        timeout_s = 60          # an integer where a float is wanted
        [model]
        top_mlp = [8, 4]
        [optimizer]
        dense_options = { betas = [0.9, 0.99], amsgrad = true }
    """
    assert load_text(tmp_path, text) == Config(
        train=TrainConfig(batch_size=512, timeout_s=60.0),
        model=ModelConfig(settings=DLRMSettings(top_mlp=(8, 4))),
        optimizer=OptimizerConfig(dense_options={"betas": [0.9, 0.99], "amsgrad": True}),
    )


def test_an_integer_becomes_the_float_that_is_declared(tmp_path: Path) -> None:
    assert type(load_text(tmp_path, "train.timeout_s = 60").train.timeout_s) is float


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    overridden = load_text(tmp_path, "[train]\nseed = 2\nepochs = 3", "train.seed=5", "model.top_mlp=[8, 4]")
    assert overridden == Config(
        train=TrainConfig(seed=5, epochs=3), model=ModelConfig(settings=DLRMSettings(top_mlp=(8, 4)))
    )


def test_a_file_that_only_its_overrides_make_valid_is_valid(tmp_path: Path) -> None:
    lookahead = load_text(tmp_path, "lookahead.group = 50", "lookahead.batches=200").lookahead
    assert lookahead == LookaheadConfig(batches=200, group=50)


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("data.path=shards", "shards"),
        ("data.path = a=b # c ", "a=b # c"),
        ("data.path=2024", "2024"),
        ("data.path=true", "true"),
        ("data.path=[1, 2]", "[1, 2]"),
        ('data.path="2024"', "2024"),
        ("data.path='C:\\x'", "C:\\x"),
        ("data.path=", ""),
    ],
)
def test_a_string_may_go_without_quotes(empty: Path, override: str, path: str) -> None:
    assert load_config(empty, [override]).data.path == path


def test_a_table_is_overridden_as_a_whole(tmp_path: Path) -> None:
    text = "[optimizer]\ndense_options = { weight_decay = 0.1 }"
    config = load_text(tmp_path, text, "optimizer.dense_options={ momentum = 0.9 }")
    assert config.optimizer.dense_options == {"momentum": 0.9}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[lookahead]\nbatchs = 4", ["lookahead.batchs = 4: no such setting", "did you mean lookahead.batches?"]),
        ("[lokahead]\nbatches = 4", ["lokahead.batches = 4: no such setting", "did you mean lookahead.batches?"]),
        ("batch_size = 4", ["batch_size = 4: no such setting", "did you mean train.batch_size?"]),
        ("[train]\ngroup = 4", ["train.group = 4: no such setting", "did you mean lookahead.group?"]),
        ("[cach]\nrows = 4", ["cach.rows = 4: no such setting", "did you mean cache.rows?"]),
        ("[xyzzy]", ["xyzzy = {}: no such setting", "`bagpipe keys` lists every setting"]),
        ('"train.seed" = 7\n[train]\nseed = 2', ["train.seed = 7: is given twice", "keep one"]),
        ("train = 4", ["train = 4: is a section", "write [train]"]),
        ("[[train]]\nseed = 1", ["train = [{'seed': 1}]: is a section", "write [train]"]),
        ("[train.seed]\nx = 1", ["train.seed = {'x': 1}", "whole number"]),
        ("[train]\nseed = '1'", ["train.seed = '1'", "whole number"]),
        ("[train]\nseed = true", ["train.seed = True", "whole number"]),
        ("[train]\nseed = 1.0", ["train.seed = 1.0", "whole number"]),
        ("[train]\nseed = 9223372036854775808", ["train.seed = 9223372036854775808", "64 bits"]),
        ("[train]\noverwrite = 1", ["train.overwrite = 1", "true or false"]),
        ("[train]\ntimeout_s = inf", ["train.timeout_s = inf", "finite number"]),
        ("[train]\ntimeout_s = true", ["train.timeout_s = True", "finite number"]),
        ("[optimizer]\nrows_lr = nan", ["optimizer.rows_lr = nan", "finite number"]),
        ('[optimizer]\nrows = "adam"\nrows_betas = [0.9]', ["optimizer.rows_betas = [0.9]", "two finite numbers"]),
        (
            '[optimizer]\nrows = "adam"\nrows_betas = [0.9, true]',
            ["optimizer.rows_betas = [0.9, True]", "two finite numbers"],
        ),
        ('[optimizer]\nrows = "adam"\nrows_betas = [0, 1]', ["optimizer.rows_betas = [0.0, 1.0]", "from 0 to below 1"]),
        (
            '[optimizer]\nrows = "adam"\nrows_betas = [0, 0.99999999]',
            ["[0.0, 0.99999999]", "0.99999994 (the largest"],
        ),
        ("[optimizer]\nrows_lr = 1e39", ["optimizer.rows_lr = 1e+39", "that float32 can hold, 1.2e-38 to 3.4e+38"]),
        ("[optimizer]\ndense_clip_norm = -1", ["optimizer.dense_clip_norm = -1.0", "use 0 for none, or a"]),
        (
            "[optimizer]\nrows_weight_decay = -1e-3",
            ["optimizer.rows_weight_decay = -0.001", "use 0, or a number above it"],
        ),
        ('[optimizer]\nrows_weight_decay_mode = "adamw"', ["rows_weight_decay_mode = 'adamw'", "one of l2, decoupled"]),
        (
            '[optimizer]\nrows_weight_decay = 1e-6\nrows_weight_decay_mode = "decoupled"',
            ["optimizer.rows_weight_decay = 1e-06", "times rows_lr = 0.005 must lie between 3e-8"],
        ),
        (
            '[optimizer]\nrows_weight_decay = 200.0\nrows_weight_decay_mode = "decoupled"',
            ["optimizer.rows_weight_decay = 200.0", "times rows_lr = 0.005 must lie between 3e-8"],
        ),
        ("[optimizer]\nrows_clip_norm = 1e-40", ["optimizer.rows_clip_norm = 1e-40", "use 0 for none, or a"]),
        ("[tables]\ninitial_bound = -0.01", ["tables.initial_bound = -0.01", "use 0 for that of the model, or a"]),
        ("[optimizer]\ndense_lr = 1e-40", ["optimizer.dense_lr = 1e-40", "that float32 can hold"]),
        ("[optimizer]\nrows_eps = 1e-50", ["optimizer.rows_eps = 1e-50", "that float32 can hold"]),
        ("[model]\nembedding_dim = 2147483648", ["model.embedding_dim = 2147483648", "a width of 1 to 2147483647"]),
        ("[model]\ntop_mlp = [8, 2147483648]", ["model.top_mlp = [8, 2147483648]", "a width of 1 to 2147483647"]),
        ("[roles]\nserver_poll_us = 1000001", ["roles.server_poll_us = 1000001", "use 0 to 1000000 microseconds"]),
        ("[train]\nthreads = 1025", ["train.threads = 1025", "use 1024 threads at most"]),
        ("[train]\nreference_slices = 32001", ["train.reference_slices = 32001", "use 32000 at most"]),
        ("[train]\ntimeout_s = 1e9", ["train.timeout_s = 1000000000.0", "31536000 (a year) at most"]),
        ("[kernels]\nplanner_threads = 1000000", ["kernels.planner_threads = 1000000", "use 1 to 1024 threads"]),
        ("[kernels]\nrow_threads = 1025", ["kernels.row_threads = 1025", "use 1 to 1024 threads, or 0"]),
        ("[data]\npath = 5", ["data.path = 5", "string in quotes"]),
        ("[model]\ntop_mlp = 5", ["model.top_mlp = 5", "list of whole numbers"]),
        ("[model]\ntop_mlp = [5, true]", ["model.top_mlp = [5, True]", "list of whole numbers"]),
        ("[optimizer]\ndense_options = 5", ["optimizer.dense_options = 5", "use a table"]),
        ("[optimizer]\ndense_options = { lr = nan }", ["optimizer.dense_options = {'lr': nan}", "use a table"]),
        ("[optimizer]\ndense_options = { x = [2024-01-01] }", ["optimizer.dense_options = ", "use a table"]),
        ("[train]\nbatch_size = 0", ["train.batch_size = 0", "use 1 or more"]),
        ("[train]\ndevice = 'gpu'", ["train.device = 'gpu'", "use one of auto, cpu, cuda"]),
        ("[lookahead]\nbatches = 4\ngroup = 4", ["lookahead.group = 4", "at most lookahead.batches - 1 = 3"]),
        ("[train]\nseed = \n", ["is not TOML", "line 2", "strings need quotes"]),
        ("[train]\noutput = runs", ["is not TOML", "line 2", "strings need quotes"]),
        ("[train]\nseed = 1\nseed = 2\n", ["is not TOML", "line 3"]),
        ("[train]\nseed = " + "[" * 100_000, ["is not TOML", "recursion"]),
        ("[train]\nseed = " + "9" * 100_000, ["is not TOML", "digits"]),
    ],
)
def test_a_mistake_in_the_file_names_file_key_value_and_cure(tmp_path: Path, text: str, parts: list[str]) -> None:
    message = refusal(tmp_path, text)
    assert message.startswith(f"{tmp_path / 'run.toml'}: ")
    assert [part for part in parts if part not in message] == []


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("train.seed", ["has no value", "write section.field=value"]),
        (
            "model.embedding_dim_of.C3=4",
            ["model.embedding_dim_of is one setting; give it whole, as model.embedding_dim_of = { C3 = 4 }"],
        ),
        ("train.seed.first=4", ["no such setting", "did you mean train.seed?"]),
        ("train.sed=1", ["train.sed = '1': no such setting", "did you mean train.seed?"]),
        ("seed=1", ["seed = '1': no such setting", "did you mean train.seed?"]),
        ("train.seed=two", ["train.seed = 'two'", "whole number"]),
        ("train.seed=", ["train.seed = ''", "whole number"]),
        ("train.seed=1\nx=2", ["holds more than one value", "one setting an override"]),
        ("train.evaluate=no", ["train.evaluate = 'no'", "true or false"]),
        ("train.best_by=accuracy", ["train.best_by = 'accuracy'", "use one of auc, log_loss, group_auc"]),
        ("train.best_by=group_auc", ["train.best_by = 'group_auc'", "set train.auc_group"]),
        ("features.longest_of={ item = true }", ["features.longest_of", "True", "1 id or more for each feature"]),
        ("train.exact_auc_samples=1073741825", ["train.exact_auc_samples", "use 1073741824 at most"]),
        ("train.stop_min_delta=-0.1", ["train.stop_min_delta = -0.1", "use 0 or more"]),
        ("model.top_mlp=[8, 4", ["model.top_mlp = [8, 4: is not TOML", "close what was opened"]),
        ('data.path="shards', ['data.path = "shards: is not TOML', "close what was opened"]),
        ("data.path=\udcff", ["data.path = '\\udcff'", "no text in this locale", "LC_ALL=C.UTF-8"]),
        ("train.output=~/runs", ["train.output = '~/runs'", "only a shell replaces ~", "write the path in full"]),
        ("data.path=~me/clicks", ["data.path = '~me/clicks'", "only a shell replaces ~"]),
        ("train.epochs=0", ["train.epochs = 0", "use 1 or more"]),
        ("model.top_mlp=" + "[" * 10_000, ["is not TOML", "recursion"]),
    ],
)
def test_a_mistake_in_an_override_names_it(empty: Path, override: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(empty, [override])
    message = str(caught.value)
    assert message.startswith(f"override {override!r}: ")
    assert [part for part in parts if part not in message] == []


def test_a_setting_overridden_twice_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, "", "train.seed=1", "train.seed=2")
    assert message == "override 'train.seed=2': train.seed = 2: is overridden twice; keep one of the two"


def test_a_clash_of_file_and_override_names_where_the_bad_value_is(tmp_path: Path) -> None:
    message = refusal(tmp_path, "[lookahead]\ngroup = 50", "lookahead.batches=20")
    assert message.startswith(f"{tmp_path / 'run.toml'}: lookahead.group = 50: ")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read \(No such file"):
        load_config(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match=r"cannot be read \(Is a directory"):
        load_config(tmp_path)


def test_a_mark_of_the_byte_order_is_passed_over(tmp_path: Path) -> None:
    """Some editors begin each file with it."""
    path = tmp_path / "run.toml"
    path.write_text("train.batch_size = 7\n", encoding="utf-8-sig")
    assert load_config(path).train.batch_size == 7


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b"data.path = '\xff'")
    with pytest.raises(ConfigError, match=r"run\.toml: is not TOML"):
        load_config(path)


words = st.text(st.characters(exclude_categories=["Cs"]))
counts = st.integers(0, 2**63 - 1)
positives = st.integers(1, 2**63 - 1)
rates = st.floats(min_value=1.2e-38, max_value=3.4e38)
threads = st.integers(1, MOST_THREADS)
polls = st.integers(0, 1_000_000)
decays = st.floats(min_value=0, max_value=0.99999994)
columns = st.integers(1, MOST_WIDTH)
widths = st.lists(columns, max_size=4).map(tuple)
scalars = (
    st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | words
)
options: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def lookaheads(draw: st.DrawFn) -> LookaheadConfig:
    batches = draw(positives)
    return LookaheadConfig(batches, draw(st.integers(0, batches - 1) if batches > 1 else counts))


configs = st.builds(
    Config,
    data=st.builds(DataConfig, words, positives, st.booleans(), positives, st.sampled_from(VERIFY_LEVELS)),
    model=st.builds(ModelConfig, st.just("dlrm"), columns, st.builds(DLRMSettings, widths, widths)),
    optimizer=st.builds(
        OptimizerConfig,
        st.just("adam"),
        st.builds(ROW_OPTIMIZERS.settings_class("adam"), rates, rates, st.tuples(decays, decays)),
        words,
        rates,
        st.dictionaries(words, options, max_size=3),
    ),
    lookahead=lookaheads(),
    cache=st.builds(CacheConfig, counts),
    roles=st.builds(
        RolesConfig,
        servers=counts,
        placement=st.sampled_from(ROLE_PLACEMENTS),
        server_poll_us=st.integers(0, 1_000_000),
    ),
    train=st.builds(
        TrainConfig,
        batch_size=positives,
        epochs=positives,
        max_steps=counts,
        seed=counts,
        output=words.filter(bool),
        overwrite=st.booleans(),
        checkpoint_every_steps=counts,
        evaluate=st.booleans(),
        log_every_steps=positives,
        device=st.sampled_from(DEVICES),
        threads=threads,
        deterministic=st.booleans(),
        reference_slices=st.integers(1, MOST_TRAINERS),
        timeout_s=st.floats(0, 3e7, exclude_min=True),
    ),
    debug=st.builds(DebugConfig, st.booleans()),
)


@given(config=configs)
@settings(
    max_examples=share_of(50),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_what_is_written_is_read_back_equal(tmp_path: Path, config: Config) -> None:
    assert load_text(tmp_path, to_toml(config)) == config


@given(config=configs)
@settings(
    max_examples=share_of(20),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_every_setting_can_be_overridden_with_what_is_written(tmp_path: Path, config: Config) -> None:
    written = {
        f"{section}.{name}": toml_value(value)
        for section, settings in to_document(config).items()
        for name, value in settings.items()
    }
    assert list(written) == list(setting_types({"optimizer.rows": "adam"}))
    assert load_text(tmp_path, "", *(f"{key}={value}" for key, value in written.items())) == config


def test_what_toml_cannot_hold_is_not_written() -> None:
    with pytest.raises(TypeError, match="None cannot be written as TOML"):
        to_toml(Config(optimizer=OptimizerConfig(dense_options={"foreach": None})))


@pytest.mark.parametrize("compares", ["train.keep_best=true", "train.stop_after=2"])
def test_comparing_evaluations_needs_some(empty: Path, compares: str) -> None:
    assert load_config(empty, [compares]).train.evaluate
    with pytest.raises(ConfigError, match=r"train\.evaluate = False: leave it out: train\.keep_best and"):
        load_config(empty, [compares, "train.evaluate=false"])
