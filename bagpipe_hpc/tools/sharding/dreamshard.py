"""DreamShard (Zha et al., NeurIPS 2022): a cost network that learns from few placements, a policy that learns from it.

Shapes: `N` placements, `E` episodes, `T` tables, `S` servers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bagpipe_hpc.tools.sharding.cost_model import ENCODING, CostModel, Ring, members_of, take_step
from bagpipe_hpc.tools.sharding.episodes import ServerPolicy, ServerState, roll_out
from bagpipe_hpc.tools.sharding.learned import Holders, Learned
from bagpipe_hpc.tools.sharding.networks import first_weights, mlp
from bagpipe_hpc.tools.sharding.task import FEATURES, GroupCosts, Task, groups_of

_COSTS = 2
"""Kinds of costs: forward and backward."""


@dataclass(frozen=True)
class DreamShardSettings:
    """How much is learned, and how.

    Attributes:
        rounds: how often all of the following is done.
        placements: placements that are measured in a round.
        cost_updates: updates of the cost network in a round.
        cost_batch: placements in such an update.
        policy_updates: updates of the policy in a round.
        episodes: episodes in such an update, whose costs the cost network predicts.
        kept: number of the newest placements that the cost network learns from.
        rate: learning rate of Adam, falling to 0; the paper's 0.0005 is for far more episodes.
        entropy_weight: weight of the entropies of choices in the loss.
        seed: same seed and measurements, same result.
    """

    rounds: int = 10
    placements: int = 10
    cost_updates: int = 300
    cost_batch: int = 64
    policy_updates: int = 10
    episodes: int = 10
    kept: int = 5000
    rate: float = 2e-3
    entropy_weight: float = 0.001
    seed: int = 1


class OverallCostModel(CostModel):
    """Costs of each server, forward and backward, and of a whole placement, from the maximum of servers' encodings.

    Args:
        generator: draws the first weights.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__(_COSTS, generator)
        self.overall = mlp(ENCODING, 64, 1)
        first_weights(self.overall, generator)

    def overall_ms(self, sums: Tensor) -> Tensor:
        """Costs `[...]` of placements whose servers' encodings are `[..., S, Z]`."""
        found: Tensor = self.scale * self.overall(sums.max(dim=-2).values)[..., 0]
        return found


class DreamShardPolicy(ServerPolicy):
    """Scores a server by its tables, by the table to place, and by the costs that the cost network predicts for it.

    Args:
        generator: draws the first weights.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.encoder = mlp(FEATURES, 128, ENCODING)
        self.score = mlp(2 * ENCODING + _COSTS, 64, 1)
        first_weights(self, generator)

    def codes(self, features: Tensor, encodings: Tensor) -> Tensor:  # noqa: ARG002 - it has an encoder of its own
        """The encodings of the policy's own encoder."""
        found: Tensor = self.encoder(features)
        return found

    def contexts(self, codes: Tensor) -> Tensor:
        """The code of each table."""
        return codes

    def scores(self, context: Tensor, servers: ServerState) -> Tensor:
        """Logits from the table, the server's tables and their costs."""
        table = context.expand_as(servers.codes)
        found: Tensor = self.score(torch.cat((servers.codes, table, servers.costs), dim=-1))[..., 0]
        return found


def learn_dreamshard(
    task: Task, costs: GroupCosts, settings: DreamShardSettings, progress: Callable[[str], None]
) -> Learned:
    """Learn to place the tables of a task; only some placements in each round are measured.

    Args:
        task: the tables.
        costs: measures what groups of tables cost.
        settings: how to learn.
        progress: called with a line now and then.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    model, policy = OverallCostModel(generator), DreamShardPolicy(generator)
    cost_optimizer = torch.optim.Adam(model.parameters(), settings.rate)
    optimizer = torch.optim.Adam(policy.parameters(), settings.rate)
    updates = settings.rounds * settings.policy_updates
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1e-3, updates)
    cost_decay = torch.optim.lr_scheduler.LinearLR(cost_optimizer, 1.0, 1e-3, settings.rounds * settings.cost_updates)
    ring, seen = Ring(settings.kept), dict[Holders, None]()
    features = torch.from_numpy(task.features)
    for number in range(settings.rounds):
        with torch.no_grad():
            placements = roll_out(policy, model, task, settings.placements, generator)
        for holders in placements.holders.tolist():
            _measure(holders, task, costs, ring)
        seen |= dict.fromkeys(map(tuple, placements.holders[placements.has_room].tolist()))
        model.fit_scale(ring)
        for _ in range(settings.cost_updates):
            take_step(cost_optimizer, _cost_loss(model, features, *ring.draw(settings.cost_batch, generator)))
            cost_decay.step()
        for _ in range(settings.policy_updates):
            take_step(optimizer, _policy_loss(policy, model, task, settings, generator))
            decay.step()
        progress(f"dreamshard: round {number + 1} of {settings.rounds}, {len(ring)} placements measured")
    return Learned(policy, model, task, tuple(seen), settings.seed)


def _measure(holders: list[int], task: Task, costs: GroupCosts, ring: Ring) -> None:
    """Measure the servers of a placement, even those that hold too much: the limit does not bind measurements here."""
    groups = groups_of(holders, task.servers)
    members = torch.stack([members_of(group, len(task.tables)) for group in groups])
    found = [costs.cost(group) for group in groups]
    ring.add(members, torch.tensor([(cost.forward_ms, cost.backward_ms) for cost in found]))


def _cost_loss(model: OverallCostModel, features: Tensor, members: Tensor, measured: Tensor) -> Tensor:
    """The cost network's loss for members `[N, S, T]` and measured costs `[N, S, 2]`."""
    sums = members @ model.encode(features)
    of_servers = (model.costs_ms(sums) - measured) / model.scale
    overall = (model.overall_ms(sums) - measured.sum(dim=-1).max(dim=-1).values) / model.scale
    return of_servers.square().mean() + overall.square().mean()


def _policy_loss(
    policy: DreamShardPolicy,
    model: OverallCostModel,
    task: Task,
    settings: DreamShardSettings,
    generator: torch.Generator,
) -> Tensor:
    """REINFORCE with returns that the cost network predicts for episodes; an episode without room gets the worst."""
    episodes = roll_out(policy, model, task, settings.episodes, generator)
    members = torch.nn.functional.one_hot(episodes.holders, task.servers).transpose(1, 2).float()
    with torch.no_grad():
        overall = model.overall_ms(members @ model.encode(torch.from_numpy(task.features)))
        overall = torch.where(episodes.has_room, overall, 2 * overall.abs().max())
        returns = (overall.mean() - overall) / (overall.std() + 1e-6 * model.scale)
    loss = -(returns * episodes.log_chances.sum(dim=1)).mean()
    return loss - settings.entropy_weight * episodes.entropies.mean()
