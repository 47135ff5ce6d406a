"""Compares the trainers' copies of the dense half, which every trainer updates by itself and which must stay equal.

Only the first trainer's copy is saved. If another one drifts, through faulty memory or a processor that rounds
otherwise, its gradients are those of another model, and nothing else would tell.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.optim import Optimizer

from bagpipe_hpc.errors import ConsistencyError

Digests = Mapping[str, bytes]
"""Of each tensor of a trainer's dense half, by name."""

_DIGEST_BYTES = 16
_OF_TRAINED = (
    "No checkpoint of this step is written. Look for faulty memory there, for another kind of processor or GPU, which "
    "may round otherwise, or for a training loop that changes weights itself; then go on with train.resume=auto"
)
_OF_NEW = (
    "They have not been trained yet: let all hosts have the same torch, and the model be the same wherever it is made, "
    "with first weights from torch's generator, or from one seeded with facts.seed"
)


def dense_digests(model: nn.Module, optimizer: Optimizer) -> Digests:
    """Digests of the bits of every weight, of what the optimizer keeps for it, and of buffers that are saved.

    Waits for the device.
    """
    tensors = dict(model.state_dict())
    for name, weight in model.named_parameters():
        tensors[name] = weight
        tensors |= {f"{name}, {key!r} of the optimizer": kept for key, kept in optimizer.state.get(weight, {}).items()}
    return {what: _digest(tensor) for what, tensor in tensors.items() if isinstance(tensor, torch.Tensor)}


def _digest(tensor: torch.Tensor) -> bytes:
    bits = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
    return hashlib.blake2b(bits.data, digest_size=_DIGEST_BYTES).digest()


def require_equal_replicas(
    step: int, trainers: Sequence[str], replicas: Sequence[Digests], *, are_new: bool = False
) -> None:
    """See that all trainers hold the same bits; where they do not, most of them, or else the first, are taken as right.

    Args:
        step: steps done.
        trainers: what each trainer is called.
        replicas: of each trainer.
        are_new: whether none of them has trained since it was made or loaded.

    Raises:
        ConsistencyError: one or more hold others; the message names them and the first tensor.
    """
    found = [tuple(sorted(replica.items())) for replica in replicas]
    (right, _), *others = Counter(found).most_common()  # of those that are as frequent, the first trainer's
    if not others:
        return
    drifted = [number for number, replica in enumerate(found) if replica != right]
    expected = dict(right)
    names = list(replicas[found.index(right)])
    first = next((name for name in names if replicas[drifted[0]].get(name) != expected[name]), "the list of tensors")
    wrong = sum(replicas[drifted[0]].get(name) != expected[name] for name in names)
    raise ConsistencyError(
        f"the trainers' dense weights differ after step {step}: {', '.join(trainers[number] for number in drifted)} "
        f"drifted from the {len(found) - len(drifted)} others: {wrong} of {len(names)} tensors, the first is {first}. "
        f"{_OF_NEW if are_new else _OF_TRAINED}"
    )
