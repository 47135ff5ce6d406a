"""AutoShard (Zha et al., KDD 2022): a policy that remembers what it placed, rewarded for loading servers evenly.

Shapes: `E` episodes, `T` tables, `S` servers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bagpipe_hpc.tools.sharding.cost_model import ENCODING, CostModel, Ring, members_of, take_step
from bagpipe_hpc.tools.sharding.episodes import Episodes, ServerPolicy, ServerState, roll_out
from bagpipe_hpc.tools.sharding.learned import Holders, Learned
from bagpipe_hpc.tools.sharding.networks import first_weights, mlp
from bagpipe_hpc.tools.sharding.task import GroupCosts, Task, groups_of

_STATE = 64


@dataclass(frozen=True)
class AutoShardSettings:
    """How much is learned, and how.

    Attributes:
        steps: steps of the learner; the paper takes 100,000.
        episodes: episodes that are measured in each step.
        cost_updates: updates of the cost model in each step.
        cost_batch: groups in such an update.
        kept: number of the newest groups that the cost model learns from.
        rate: learning rate of both Adam optimizers; the policy's falls to a thousandth.
        entropy_weight: weight of the entropies of choices in the loss.
        value_weight: weight of the errors of expected rewards in the loss.
        clip: largest norm of a gradient.
        seed: same seed and measurements, same result.
    """

    steps: int = 40
    episodes: int = 8
    cost_updates: int = 20
    cost_batch: int = 512
    kept: int = 5000
    rate: float = 1e-3
    entropy_weight: float = 0.001
    value_weight: float = 0.5
    clip: float = 40.0
    seed: int = 1


class AutoShardPolicy(ServerPolicy):
    """An LSTM reads the tables in their order; a server is scored by the product of its output and what the server has.

    Args:
        generator: draws the first weights.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.memory = nn.LSTM(ENCODING + 1, _STATE, num_layers=2)
        self.server = nn.Linear(ENCODING + 2, _STATE)
        self.score = mlp(3 * _STATE, 128, 128, 64, 1)
        self.value = nn.Linear(_STATE, 1)
        first_weights(self, generator)

    def codes(self, features: Tensor, encodings: Tensor) -> Tensor:  # noqa: ARG002 - the encodings say all
        """The encodings of the cost model: policy and cost model share the encoder."""
        return encodings

    def contexts(self, codes: Tensor) -> Tensor:
        """The LSTM's output at each table, `[T, C]`: it reads the code and the progress of the episode."""
        progress = torch.linspace(0, 1, len(codes))[:, None]
        found: Tensor = self.memory(torch.cat((codes, progress), dim=1))[0]
        return found

    def scores(self, context: Tensor, servers: ServerState) -> Tensor:
        """Logits from the LSTM's state, the server, and the product of both."""
        described = (servers.codes, servers.costs.sum(-1, keepdim=True), servers.used[..., None])
        action = self.server(torch.cat(described, dim=-1))
        state = context.expand_as(action)
        found: Tensor = self.score(torch.cat((state, action, state * action), dim=-1))[..., 0]
        return found

    def values(self, contexts: Tensor) -> Tensor:
        """The reward expected at each table, `[T]`."""
        found: Tensor = self.value(contexts)[:, 0]
        return found


def learn_autoshard(
    task: Task, costs: GroupCosts, settings: AutoShardSettings, progress: Callable[[str], None]
) -> Learned:
    """Learn to place the tables of a task by measuring the placements of episodes.

    One process acts and learns, so V-trace's weights are 1, which makes it plain actor-critic.

    Args:
        task: the tables.
        costs: measures what groups of tables cost.
        settings: how to learn.
        progress: called with a line now and then.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    model, policy = CostModel(1, generator), AutoShardPolicy(generator)
    cost_optimizer = torch.optim.Adam(model.parameters(), settings.rate)
    optimizer = torch.optim.Adam(policy.parameters(), settings.rate)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1e-3, settings.steps)
    ring, seen = Ring(settings.kept), dict[Holders, None]()
    features = torch.from_numpy(task.features)
    for step in range(settings.steps):
        episodes = roll_out(policy, model, task, settings.episodes, generator)
        rewards = torch.tensor([_reward(episodes, number, task, costs, ring) for number in range(settings.episodes)])
        seen |= dict.fromkeys(map(tuple, episodes.holders[episodes.has_room].tolist()))
        if len(ring):
            model.fit_scale(ring)
        for _ in range(settings.cost_updates if len(ring) else 0):
            members, measured = ring.draw(settings.cost_batch, generator)
            error = model.predict(features, members) - measured
            take_step(cost_optimizer, (error / model.scale).square().mean())
        values = policy.values(episodes.contexts)
        advantages = rewards[:, None] - values
        loss = -(advantages.detach() * episodes.log_chances).sum(dim=1).mean()
        loss = loss + settings.value_weight * advantages.square().sum(dim=1).mean()
        loss = loss - settings.entropy_weight * episodes.entropies.mean()
        take_step(optimizer, loss, settings.clip)
        decay.step()
        progress(f"autoshard: step {step + 1} of {settings.steps}, mean reward {float(rewards.mean()):.4f}")
    return Learned(policy, model, task, tuple(seen), settings.seed)


def _reward(episodes: Episodes, number: int, task: Task, costs: GroupCosts, ring: Ring) -> float:
    """The reward of an episode: how evenly servers are loaded, 0 to 1; if one is above the limit, minus its excess.

    The excess is a share of the limit.
    """
    if not episodes.has_room[number]:
        return 1 - float(episodes.held_bytes[number].max()) / task.limit_bytes
    groups = groups_of(episodes.holders[number].tolist(), task.servers)
    measured = [costs.cost(group).total_ms for group in groups]
    for group, cost_ms in zip(groups, measured, strict=True):
        ring.add(members_of(group, len(task.tables)), torch.tensor([cost_ms]))
    return min(measured) / max(measured) if max(measured) > 0 else 1.0
