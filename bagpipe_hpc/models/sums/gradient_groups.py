"""The groups in which a model's gradients are summed over the trainers, in the order in which they are finished."""

from collections import Counter
from collections.abc import Iterator, Sequence

from torch import nn

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.contract import OrdersGradients

_GROUP_NUMBERS = 1 << 18
"""Fewest weights of a group, 1 MB: each sum over the trainers has a cost of its own, whatever its size."""
_GROUP_SHARES = (1 / 4, 1 / 6)
"""Least share of all weights in a group: where sums run one after the other, so that there should be few, and where
they run side by side. The first sum starts with half of the pass to come."""
_LAST_SHARES = (1 / 8, 1 / 16)
"""Least share of all weights in the last group, whose sum starts when the pass is over; for the same two cases."""


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that training changes; frozen ones (`requires_grad = False`) stay as they are."""
    return [weight for weight in model.parameters() if weight.requires_grad]


def gradient_groups(model: nn.Module, *, side_by_side: bool = False) -> list[list[nn.Parameter]]:
    """The model's own groups, or else its parameters in reverse order of registration: a few groups of 1 MB or more.

    Modules register layers in the order in which forward uses them, as a rule; the backward pass goes the other way. A
    model that does otherwise is summed just as well, only later.

    Args:
        model: of the run.
        side_by_side: whether sums run side by side, so that another one adds no latency (`DenseSums`): then there are
            up to six groups, otherwise up to four.

    Raises:
        ConfigError: the model's own groups leave a parameter out, or have one twice.
    """
    if not isinstance(model, OrdersGradients):
        return list(_in_reverse(trainable(model), _GROUP_SHARES[side_by_side], _LAST_SHARES[side_by_side]))
    groups = [part for group in model.gradient_groups() if (part := [own for own in group if own.requires_grad])]
    names = {weight: name for name, weight in model.named_parameters() if weight.requires_grad}
    found = Counter(weight for group in groups for weight in group)
    wrong = [f"{name} {found[weight]} times" for weight, name in names.items() if found[weight] != 1]
    wrong += ["one that is not the model's" for weight in found if weight not in names]
    if wrong:
        raise ConfigError(
            f"{type(model).__name__}.gradient_groups: must hold each trainable parameter once, and holds {wrong[0]}"
        )
    return groups


def groups_at_once(sizes: Sequence[int], late_share: float) -> int:
    """How many of the groups are summed as the backward pass comes to them; the others have late gradients.

    Args:
        sizes: weights of each group, in the order of `gradient_groups`.
        late_share: largest share of all weights that the late groups have together; these are the last groups, of the
            layers that the next forward pass reads first.
    """
    most, late = late_share * sum(sizes), 0
    for number in range(len(sizes), 0, -1):
        late += sizes[number - 1]
        if late > most:
            return number
    return 0


def _in_reverse(weights: list[nn.Parameter], share: float, last_share: float) -> Iterator[list[nn.Parameter]]:
    left = total = sum(weight.numel() for weight in weights)
    group: list[nn.Parameter] = []
    for weight in reversed(weights):
        group.append(weight)
        left -= weight.numel()
        size = sum(member.numel() for member in group)
        if size >= max(_GROUP_NUMBERS, share * total) and left >= last_share * total:
            yield group
            group = []
    if group:
        yield group
