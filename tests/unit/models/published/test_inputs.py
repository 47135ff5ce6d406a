"""Every model refuses by name the inputs that it cannot use, and takes any others: the trial of a run passes."""

from typing import Any

import pytest
import torch

from bagpipe_hpc.config.doors import MODELS
from bagpipe_hpc.config.models import DINSettings
from bagpipe_hpc.config.schema import ModelConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.facts import FeatureFacts, ModelFacts
from bagpipe_hpc.models.size import measure_model
from bagpipe_hpc.models.trial import try_model

CPU = torch.device("cpu")
WIDTH = 5
POOLED = (FeatureFacts("user", WIDTH), FeatureFacts("item", WIDTH), FeatureFacts("genres", WIDTH, "mean", 4))
SEQUENCES = (FeatureFacts("history", WIDTH, "sequence", 6), FeatureFacts("carts", WIDTH, "sequence", 3))
OF_ONE_VECTOR = tuple(name for name in MODELS.entries if name not in ("din", "graphsage"))


def config(name: str, width: int = WIDTH) -> ModelConfig:
    return ModelConfig(name=name, embedding_dim=width)


@pytest.mark.parametrize("name", OF_ONE_VECTOR)
@pytest.mark.parametrize(
    ("features", "dense", "labels"),
    [
        pytest.param(POOLED, 3, 1, id="usual"),
        pytest.param(POOLED[:1], 0, 3, id="one feature, no dense ones, three labels"),
        pytest.param(POOLED, 0, 1, id="no dense features", marks=pytest.mark.slow),
        pytest.param(POOLED, 0, 3, id="no dense features, three labels", marks=pytest.mark.slow),
        pytest.param(POOLED[:1], 3, 1, id="one feature", marks=pytest.mark.slow),
        pytest.param(POOLED[:1], 0, 1, id="one feature, no dense ones", marks=pytest.mark.slow),
    ],
)
def test_any_inputs_will_do(name: str, features: tuple[FeatureFacts, ...], dense: int, labels: int) -> None:
    facts = ModelFacts(dense, features, seed=2, labels=labels)
    try_model(config(name), facts, CPU)
    assert measure_model(config(name), facts, 10).step_bytes > 0


@pytest.mark.parametrize("name", OF_ONE_VECTOR)
def test_sequences_are_refused_with_the_cure(name: str) -> None:
    facts = ModelFacts(3, (*POOLED, *SEQUENCES), seed=1)
    cure = r'set features\.pooling_of = \{ history = "sum", carts = "sum" \}, or use model\.name = \'din\'$'
    with pytest.raises(ConfigError, match=rf"^model\.name = '{name}': .*the data has history, carts; {cure}"):
        try_model(config(name), facts, CPU)


WIDTHS = (FeatureFacts("user", 4), FeatureFacts("item", 7), FeatureFacts("genres", 4, "mean", 4))


@pytest.mark.parametrize("name", ["wide_deep", "dcn", "dcn_v2"])
@pytest.mark.parametrize(("dense", "labels"), [(3, 1), (0, 3)])
def test_vectors_of_any_widths_stand_side_by_side(name: str, dense: int, labels: int) -> None:
    facts = ModelFacts(dense, WIDTHS, seed=2, labels=labels)
    try_model(config(name), facts, CPU)
    assert measure_model(config(name), facts, 10).step_bytes > 0


@pytest.mark.parametrize("name", ["dlrm", "dlrm_dcnv2", "deepfm"])
def test_vectors_of_several_widths_are_refused_where_they_are_multiplied(name: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.embedding_dim_of: .*its features have \(4, 7\); leave it out"):
        try_model(config(name), ModelFacts(3, WIDTHS, seed=1), CPU)


def test_a_history_is_as_wide_as_its_target() -> None:
    """Whatever the other rows' widths are."""
    history = FeatureFacts("history", 7, "sequence", 6)
    try_model(din({"history": "item"}), ModelFacts(3, (*WIDTHS, history), seed=1), CPU)
    with pytest.raises(ConfigError, match="rows of history have 7 numbers and those of user 4; give their tables one"):
        try_model(din({"history": "user"}), ModelFacts(3, (*WIDTHS, history), seed=1), CPU)


@pytest.mark.parametrize("name", ["wide_deep", "deepfm"])
def test_a_row_without_room_for_factors_is_refused(name: str) -> None:
    said = rf"^model\.embedding_dim, embedding_dim_of: rows of user are 2 wide, and .*'{name}' takes .*; use 3 or more$"
    with pytest.raises(ConfigError, match=said):
        try_model(config(name), ModelFacts(3, (FeatureFacts("user", 2),), seed=1, labels=2), CPU)


def test_the_table_whose_rows_have_no_room_for_factors_is_named() -> None:
    features = (FeatureFacts("item", 4), FeatureFacts("user", 1), FeatureFacts("genres", 1, "mean", 4))
    with pytest.raises(ConfigError, match=r"rows of user are 1 wide, .*; use 2 or more$"):
        try_model(config("wide_deep"), ModelFacts(3, features, seed=1), CPU)


def din(attention: dict[str, Any]) -> ModelConfig:
    return ModelConfig(name="din", embedding_dim=WIDTH, settings=DINSettings(attention=attention))


@pytest.mark.parametrize(("dense", "labels"), [(3, 1), (0, 1), (0, 3)])
@pytest.mark.parametrize("pooled", [POOLED, POOLED[1:2]], ids=["features", "a target alone"])
def test_din_takes_histories(pooled: tuple[FeatureFacts, ...], dense: int, labels: int) -> None:
    facts = ModelFacts(dense, (*SEQUENCES, *pooled), seed=2, labels=labels)
    settings = din({"carts": "item", "history": "item"})
    try_model(settings, facts, CPU)
    assert measure_model(settings, facts, 20).step_bytes == pytest.approx(
        2 * measure_model(settings, facts, 10).step_bytes, rel=0.1
    )


@pytest.mark.parametrize(
    ("attention", "features", "message"),
    [
        (
            {},
            POOLED,
            r"^model\.name = 'din': needs a sequence, .* pooled \(user, item, genres\); set",
        ),
        ({"genres": "item"}, (*POOLED, *SEQUENCES), "'genres' is no sequence; the sequences are history, carts; set"),
        ({"history": "thing"}, (*POOLED, *SEQUENCES), "'thing' is no pooled feature; use one of user, item, genres$"),
        ({"history": "carts"}, SEQUENCES, "'carts' is no pooled feature; all features are sequences: pool one, as"),
        ({"history": "item"}, (*POOLED, *SEQUENCES), "says nothing of the sequence carts; name its target, as "),
    ],
)
def test_din_says_which_pair_is_wrong(
    attention: dict[str, Any], features: tuple[FeatureFacts, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        try_model(din(attention), ModelFacts(3, features, seed=1), CPU)


HOPS = (
    FeatureFacts("node", WIDTH),
    FeatureFacts("hop1", WIDTH, "sequence", 3, is_drawn=True),
    FeatureFacts("hop2", WIDTH, "sequence", 6, is_drawn=True),
)


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize(("dense", "labels"), [(3, 1), (0, 2)])
def test_graphsage_takes_hops(hops: int, dense: int, labels: int) -> None:
    try_model(ModelConfig(name="graphsage", embedding_dim=WIDTH), ModelFacts(dense, HOPS[: 1 + hops], 1, labels), CPU)


def test_graphsage_needs_a_graph() -> None:
    config = ModelConfig(name="graphsage", embedding_dim=WIDTH)
    for features in (HOPS[:1], (FeatureFacts("user", WIDTH), FeatureFacts("history", WIDTH, "sequence", 3))):
        with pytest.raises(
            ConfigError, match=r"model\.name = 'graphsage': needs data with a graph \(`bagpipe prepare-"
        ):
            try_model(config, ModelFacts(3, features, seed=1), CPU)
    pooled = FeatureFacts("hop1", WIDTH, "mean", 3, is_drawn=True)
    with pytest.raises(
        ConfigError, match=r'takes the nodes of each hop one by one; set features\.pooling = "sequence"$'
    ):
        try_model(config, ModelFacts(3, (HOPS[0], pooled), seed=1), CPU)


@pytest.mark.parametrize("name", ["dlrm", "wide_deep"])
def test_other_models_pool_hops(name: str) -> None:
    pooled = tuple(FeatureFacts(f"hop{hop}", WIDTH, "mean", 3, is_drawn=True) for hop in (1, 2))
    try_model(ModelConfig(name=name, embedding_dim=WIDTH), ModelFacts(3, (HOPS[0], *pooled), seed=1), CPU)
