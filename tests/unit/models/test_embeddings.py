"""What a model is given: pooled vectors and sequences by name, padded where it asks for that."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.embeddings import Embeddings, SequenceRows, longest_embeddings, random_embeddings
from bagpipe_hpc.models.facts import FeatureFacts, ModelFacts

FEATURES = (
    FeatureFacts("user", 2),
    FeatureFacts("history", 2, "sequence", 4),
    FeatureFacts("item", 2),
    FeatureFacts("views", 2, "sequence", 9),
)
FACTS = ModelFacts(3, FEATURES, seed=1)
CPU = torch.device("cpu")


def of_lengths(*lengths: int) -> SequenceRows:
    rows = torch.arange(1.0, 1 + 2 * sum(lengths)).reshape(-1, 2).requires_grad_()
    return SequenceRows(rows, torch.tensor(lengths, dtype=torch.int64))


def whole() -> Embeddings:
    pooled = torch.arange(12.0).reshape(3, 2, 2).requires_grad_()
    return Embeddings(
        FEATURES, {pooled.shape[2]: pooled}, {"history": of_lengths(2, 0, 1), "views": of_lengths(0, 0, 4)}
    )


def test_rows_are_padded_to_the_longest_of_the_slice() -> None:
    block, is_row = of_lengths(2, 0, 1).padded()
    assert block.tolist() == [[[1, 2], [3, 4]], [[0, 0], [0, 0]], [[5, 6], [0, 0]]]
    assert is_row.tolist() == [[True, True], [False, False], [True, False]]


@pytest.mark.parametrize(("lengths", "shape"), [((), (0, 0, 2)), ((0, 0), (2, 0, 2))])
def test_a_slice_without_rows_has_an_empty_block(lengths: tuple[int, ...], shape: tuple[int, ...]) -> None:
    block, is_row = of_lengths(*lengths).padded()
    assert block.shape == shape
    assert is_row.shape == shape[:2]


def test_gradients_come_back_through_the_padding() -> None:
    """Each row gets that of its place, and zeros behind a row's last get none."""
    sequence = of_lengths(2, 0, 1)
    block, _ = sequence.padded()
    gradient = torch.arange(12.0).reshape(block.shape)
    block.backward(gradient)
    assert sequence.rows.grad is not None
    assert sequence.rows.grad.tolist() == [[0, 1], [2, 3], [8, 9]]


def test_features_are_found_by_name() -> None:
    found = whole()
    assert torch.equal(found["user"], found.stacked()[:, 0])
    assert torch.equal(found["item"], found.stacked()[:, 1])
    assert found.concatenated().shape == (3, 4)
    assert found.sequence("views").lengths.tolist() == [0, 0, 4]
    assert [list(tensor.shape) for tensor in found.tensors()] == [[3, 2, 2], [3, 2], [4, 2]]
    assert str(found) == "embeddings [3, 2, 2], history [3, 2], views [4, 2]"


SEVERAL = (
    FeatureFacts("user", 3),
    FeatureFacts("history", 2, "sequence", 4),
    FeatureFacts("item", 2),
    FeatureFacts("genres", 3),
)


def test_vectors_of_several_widths_stand_width_after_width() -> None:
    """In the order of the data within a width; widths in the order of the features that have them first."""
    narrow, wide = torch.arange(6.0).view(3, 1, 2), torch.arange(10.0, 28.0).view(3, 2, 3)
    found = Embeddings(SEVERAL, {2: narrow, 3: wide}, {"history": of_lengths(2, 0, 1)})
    assert torch.equal(found["user"], wide[:, 0])
    assert torch.equal(found["genres"], wide[:, 1])
    assert torch.equal(found["item"], narrow[:, 0])
    assert list(found.stacked_by_width()) == [3, 2]
    assert torch.equal(found.concatenated(), torch.cat((wide.flatten(1), narrow.flatten(1)), dim=1))
    assert [[list(tensor.shape) for tensor in of] for of in found.by_width().values()] == [
        [[3, 2, 3]],
        [[3, 1, 2], [3, 2]],
    ]
    assert str(found) == "embeddings [3, 2, 3], [3, 1, 2], history [3, 2]"
    with pytest.raises(ConfigError, match=r"vectors of widths \[3, 2\] cannot be stacked; use stacked_by_width"):
        found.stacked()
    with pytest.raises(ConfigError, match=r"its features have \(3, 2\); leave it out"):
        _ = ModelFacts(3, SEVERAL, seed=1).embedding_dim


def test_a_width_of_sequences_alone_has_no_pooled_vectors() -> None:
    facts = ModelFacts(3, SEVERAL[:2], seed=1)
    for found in (random_embeddings(facts, 4, torch.Generator(), CPU), longest_embeddings(facts, 4, CPU)):
        assert {width: of.shape[:2] for width, of in found.stacked_by_width().items()} == {3: (4, 1), 2: (4, 0)}
        assert found.concatenated().shape == (4, 3)


def test_unknown_names_are_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no pooled feature 'history': the data has user, item \(features.pooling"):
        whole()["history"]
    with pytest.raises(ConfigError, match="no sequence 'user': the data has history, views"):
        whole().sequence("user")
    with pytest.raises(ConfigError, match="no sequence 'user': the data has none"):
        Embeddings.of_stacked(FEATURES[:1], torch.zeros(1, 1, 2)).sequence("user")


def test_the_first_samples_are_a_copy_of_their_own() -> None:
    one = whole().part(1)
    assert one.sequence("history").rows.tolist() == [[1, 2], [3, 4]]
    assert one.sequence("history").lengths.tolist() == [2]
    assert one.sequence("views").rows.shape == (0, 2)
    assert one.stacked().shape == (1, 2, 2)
    original = whole()
    copy = original.part(2)
    copy.stacked().zero_()
    assert original.stacked().any()


def test_any_samples_may_be_taken() -> None:
    last = whole().part(1, first=2)
    assert last.sequence("history").rows.tolist() == [[5, 6]]
    assert last.sequence("history").lengths.tolist() == [1]
    assert last.sequence("views").rows.tolist() == whole().sequence("views").rows.tolist()
    assert last.stacked().tolist() == whole().stacked()[2:].tolist()
    assert whole().part(1, first=1).sequence("history").rows.shape == (0, 2)


def has_history(embeddings: Embeddings) -> list[bool]:
    return [tensor.requires_grad for tensor in embeddings.tensors()]


def test_detached_numbers_have_no_history() -> None:
    assert has_history(whole()) == [True] * 3
    assert has_history(whole().detached()) == has_history(whole().part(2)) == [False] * 3
    pairs: list[tuple[Tensor, Tensor]] = list(zip(whole().tensors(), whole().detached().tensors(), strict=True))
    assert all(torch.equal(one, other) for one, other in pairs)


def test_models_are_tried_with_rows_of_all_shapes() -> None:
    """Sequences of a few rows, or of as many as samples may have."""
    tried = random_embeddings(FACTS, 50, torch.Generator().manual_seed(1), CPU)
    assert set(tried.sequence("history").lengths.tolist()) == set(range(5))
    assert set(tried.sequence("views").lengths.tolist()) == set(range(6))
    assert len(tried.sequence("views").rows) == int(tried.sequence("views").lengths.sum())
    longest = longest_embeddings(FACTS, 3, CPU)
    assert [list(tensor.shape) for tensor in longest.tensors()] == [[3, 2, 2], [12, 2], [27, 2]]


@pytest.mark.parametrize(
    "ask",
    [
        Embeddings.stacked,
        Embeddings.concatenated,
        Embeddings.by_width,
        lambda coming: coming["item"],
        lambda coming: coming.sequence("views"),
        str,
    ],
    ids=["stacked", "concatenated", "by width", "by name", "a sequence", "shapes"],
)
def test_embeddings_come_once_when_they_are_first_asked_for(ask: Callable[[Embeddings], object]) -> None:
    asked = []

    def come() -> Embeddings:
        asked.append(1)
        return whole()

    coming = Embeddings.coming(FEATURES, come)
    assert asked == []
    ask(coming)
    ask(coming)
    assert asked == [1]
    assert torch.equal(coming.stacked(), whole().stacked())
    assert coming.sequence("history").rows is coming.by_width()[2][1]
