"""Episodes: a policy puts tables on servers one after the other, the costliest first.

Shapes: `E` episodes side by side, `T` tables, `S` servers, `P` numbers of a table's code, `H` costs of a group.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bagpipe_hpc.tools.sharding.cost_model import CostModel
from bagpipe_hpc.tools.sharding.task import Task

_NEVER = -1e9
"""Logit of a server without room: its probability is 0, and so is the gradient, which would be NaN for -infinity."""


@dataclass(frozen=True)
class ServerState:
    """What the servers have so far.

    Attributes:
        codes: sums of their tables' codes, `[E, S, P]`.
        costs: costs that the cost model predicts for them, in units of its scale, `[E, S, H]`.
        used: memory in use, as a share of what they may hold, `[E, S]`.
    """

    codes: Tensor
    costs: Tensor
    used: Tensor


class ServerPolicy(nn.Module, ABC):
    """Chooses a server for a table. It scores each server by itself, so their number does not matter."""

    @abstractmethod
    def codes(self, features: Tensor, encodings: Tensor) -> Tensor:
        """Codes `[T, P]` of the tables, in the order in which they are placed.

        Args:
            features: features of the tables, `[T, 21]`.
            encodings: the cost model's encodings, `[T, Z]`.
        """

    @abstractmethod
    def contexts(self, codes: Tensor) -> Tensor:
        """The input to the choice for each table besides the servers, `[T, C]`."""

    @abstractmethod
    def scores(self, context: Tensor, servers: ServerState) -> Tensor:
        """How likely each server is to get a table, as logits `[E, S]`; `context` is that of the table, `[C]`."""


@dataclass(frozen=True)
class Episodes:
    """The results of some episodes.

    Attributes:
        holders: the server of each table, int64 `[E, T]`, tables in the task's order.
        log_chances: log probability of each choice, in the order of choices, `[E, T]`.
        entropies: entropy of all choices of an episode, `[E]`.
        has_room: whether there was always a server with room, bool `[E]`; else a server holds too much.
        held_bytes: bytes that each server holds, float64 `[E, S]`.
        contexts: `ServerPolicy.contexts`.
    """

    holders: Tensor
    log_chances: Tensor
    entropies: Tensor
    has_room: Tensor
    held_bytes: Tensor
    contexts: Tensor


def placing_order(model: CostModel, features: Tensor) -> Tensor:
    """The tables by the cost of each alone, costliest first, int64 `[T]`."""
    with torch.no_grad():
        alone = model.predict(features, torch.eye(len(features))).sum(-1)
    return alone.argsort(descending=True, stable=True)


def roll_out(
    policy: ServerPolicy, model: CostModel, task: Task, episodes: int, generator: torch.Generator | None
) -> Episodes:
    """Place all tables, several times side by side.

    Servers without room get no table. Where none has room for one, it goes anywhere, and the episode says so.

    Args:
        policy: chooses the servers.
        model: predicts what groups cost.
        task: the tables.
        episodes: number of episodes E.
        generator: draws the choices; None takes the likeliest server each time.
    """
    features = torch.from_numpy(task.features)
    order = placing_order(model, features)
    encodings = model.encode(features).detach()[order]
    codes = policy.codes(features[order], encodings)
    contexts = policy.contexts(codes)
    sizes = torch.tensor([float(table.bytes) for table in task.tables], dtype=torch.float64)[order]
    limit = task.limit_bytes if task.limit_bytes < float("inf") else float(sizes.sum())
    shape = (episodes, task.servers)
    held = torch.zeros(shape, dtype=torch.float64)
    sums, code_sums = torch.zeros(*shape, encodings.shape[1]), torch.zeros(*shape, codes.shape[1])
    log_chances, chosen_servers = [], []
    entropies, has_room = torch.zeros(episodes), torch.ones(episodes, dtype=torch.bool)
    for step in range(len(order)):
        with torch.no_grad():
            costs = model.costs_ms(sums) / model.scale
        scores = policy.scores(contexts[step], ServerState(code_sums, costs, (held / limit).float()))
        allowed = held + sizes[step] <= task.limit_bytes
        stuck = ~allowed.any(dim=1)
        has_room &= ~stuck
        chances = scores.masked_fill(~(allowed | stuck[:, None]), _NEVER).log_softmax(dim=1)
        if generator is None:
            chosen = chances.argmax(dim=1)
        else:
            chosen = torch.multinomial(chances.detach().exp(), 1, generator=generator)[:, 0]
        log_chances.append(chances.gather(1, chosen[:, None])[:, 0])
        entropies = entropies - (chances.exp() * chances).sum(dim=1)
        chosen_servers.append(chosen)
        put = nn.functional.one_hot(chosen, task.servers)
        held = held + put * sizes[step]
        sums = sums + put[..., None] * encodings[step]
        code_sums = code_sums + put[..., None] * codes[step]
    holders = torch.empty((episodes, len(order)), dtype=torch.int64)
    holders[:, order] = torch.stack(chosen_servers, dim=1)
    return Episodes(holders, torch.stack(log_chances, dim=1), entropies, has_room, held, contexts)
