"""GraphSAGE with mean aggregators (Hamilton, Ying, Leskovec 2017, arXiv 1706.02216): a node from its neighbours.

Legend: `B` samples, `N` dense features, `D` embedding width, `K` labels; `m` nodes of a hop of all samples, `f`
neighbours of each.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from bagpipe_hpc.config.models import GraphSAGESettings
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.published.inputs import as_logits
from bagpipe_hpc.models.published.mlp import glorot_normal, make_mlp, use_linear


class GraphSAGE(nn.Module):
    """A layer for each hop, then a linear layer over the node's vector and the dense features.

    A layer takes a node's vector beside the mean of its neighbours' (algorithm 1, lines 4 and 5), and is the same for
    all nodes. The first one starts from rows of the table, which are learned. The paper's scaling of vectors to length
    1 (line 7) is not there.
    """

    Settings = GraphSAGESettings

    def __init__(self, facts: ModelFacts, settings: GraphSAGESettings) -> None:
        super().__init__()
        self._node, self._hops = _hops_of(facts)
        generator = torch.Generator().manual_seed(facts.seed)
        sizes = [hop.longest for hop in facts.features]
        self._fan_outs = [further // own for own, further in pairwise(sizes)]
        widths = [facts.embedding_dim, *[settings.hidden] * len(self._hops)]
        self.layers = nn.ModuleList(
            make_mlp([2 * width, outputs], glorot_normal, generator, last_is_linear=False)
            for width, outputs in pairwise(widths)
        )
        inputs = settings.hidden + facts.dense_features
        self.last = make_mlp([inputs, facts.labels], glorot_normal, generator, last_is_linear=True)

    def use_kernels(self, kernels: ModelKernels) -> None:
        """Let other code compute the linear layers from now on."""
        use_linear(self, kernels.linear)

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        """Logits.

        Args:
            dense: float32 `[B, N]`.
            embeddings: the node, float32 `[B, D]`, and the rows of each hop.

        Returns:
            float32 `[B]`; of several labels `[B, K]`.
        """
        vectors = [embeddings[self._node], *(embeddings.sequence(hop).rows for hop in self._hops)]
        for layer in self.layers:
            nodes = [of_hop.shape[0] for of_hop in vectors[:-1]]
            inputs = [
                _beside_mean(own, further, fan_out)
                for own, further, fan_out in zip(vectors, vectors[1:], self._fan_outs, strict=False)
            ]
            vectors = list(torch.split(layer(torch.cat(inputs)), nodes))
        return as_logits(self.last(torch.cat((vectors[0], dense), dim=1)))


def _beside_mean(own: Tensor, neighbours: Tensor, fan_out: int) -> Tensor:
    """A node's vector beside the mean of its neighbours': `[m, D]` and `[m * f, D]` to `[m, 2 * D]`."""
    means = neighbours.view(own.shape[0], fan_out, own.shape[1]).mean(dim=1)
    return torch.cat((own, means), dim=1)


def _hops_of(facts: ModelFacts) -> tuple[str, list[str]]:
    """Names of the node and of its hops.

    Raises:
        ConfigError: the data has no graph, or a hop is no sequence.
    """
    said = "model.name = 'graphsage'"
    node, *hops = facts.features
    if not hops or node.is_drawn or not all(hop.is_drawn for hop in hops):
        raise ConfigError(f"{said}: needs data with a graph (`bagpipe prepare-graph`); use another model")
    if any(not hop.is_sequence for hop in hops):
        raise ConfigError(f'{said}: takes the nodes of each hop one by one; set features.pooling = "sequence"')
    return node.name, [hop.name for hop in hops]
