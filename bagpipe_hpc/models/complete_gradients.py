"""Notices in a backward pass when the gradients of some leaves are complete."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor

from bagpipe_hpc.errors import ConfigError

ONE_PASS = "let one pass compute them all (torch.utils.checkpoint: use_reentrant=False)"
"""The cure where leaves get gradients in several passes, so that those of the first pass were taken for complete."""


@contextmanager
def noticing(groups: Mapping[int, Sequence[Tensor]], complete: Callable[[int], None]) -> Iterator[None]:
    """The body is a backward pass, which calls `complete` for each group of leaves that all have their gradients.

    A pass adds up all that comes to a leaf before it gives it to the leaf, so it does so once; and of the nodes that
    are ready it takes leaves first (torch/csrc/autograd/engine.cpp, functions/accumulate_grad.h). So gradients of
    embeddings are there before those of layers that come after them in the pass, such as a bottom MLP.

    Args:
        groups: leaves of the graph, by a key. A leaf that gets nothing in this pass keeps its group incomplete.
        complete: is given the key. On a CPU the gradients are there then; on a GPU they may still be being computed.

    Raises:
        ConfigError: a leaf gets a second gradient: a pass of its own, within this one, went through it.
    """
    missing = {key: set(range(len(leaves))) for key, leaves in groups.items()}

    def has_come(key: int, number: int) -> None:
        if number not in missing[key]:
            raise ConfigError(f"embeddings got gradients in several backward passes, one within the other: {ONE_PASS}")
        missing[key].discard(number)
        if not missing[key]:
            complete(key)

    hooks = [
        leaf.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda _, key=key, number=number: has_come(key, number)
        )
        for key, leaves in groups.items()
        for number, leaf in enumerate(leaves)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
