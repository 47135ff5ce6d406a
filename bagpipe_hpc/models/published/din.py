"""Deep Interest Network (Zhou et al. 2018, arXiv 1706.06978): attention of a target over the rows of a history.

Legend: `B` samples, `N` dense features, `P` pooled features, `D` embedding width, `K` labels, `V` rows of a history
over all samples.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from bagpipe_hpc.config.models import DINSettings
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.embeddings import Embeddings, SequenceRows
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.published.inputs import as_logits, side_by_side, side_by_side_width
from bagpipe_hpc.models.published.mlp import MLP, glorot_normal, make_mlp, use_linear


class DIN(nn.Module):
    """A vector of each history, weighted by its target; an MLP over these, the pooled vectors and the dense features.

    MLPs have PReLU between their layers. The paper's Dice takes means over the batch, on which no logit may depend.
    """

    Settings = DINSettings

    def __init__(self, facts: ModelFacts, settings: DINSettings) -> None:
        super().__init__()
        _check_attention(settings.attention, facts)
        self._targets = {name: settings.attention[name] for name in (feature.name for feature in facts.sequences)}
        generator = torch.Generator().manual_seed(facts.seed)
        widths = [feature.width for feature in facts.sequences]
        self.units = nn.ModuleList(
            AttentionUnit(_prelu_mlp([4 * width, *settings.attention_mlp, 1], generator)) for width in widths
        )
        inputs = side_by_side_width(facts) + sum(widths)
        self.deep = _prelu_mlp([inputs, *settings.deep_mlp, facts.labels], generator)

    def use_kernels(self, kernels: ModelKernels) -> None:
        """Let other code compute the linear layers from now on."""
        use_linear(self, kernels.linear)

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        """Logits.

        Args:
            dense: float32 `[B, N]`.
            embeddings: the pooled ones, float32 `[B, P, D]`, and the rows of each history, `[V, D]`.

        Returns:
            float32 `[B]`; of several labels `[B, K]`.
        """
        interests = [
            unit(embeddings[target], embeddings.sequence(history))
            for unit, (history, target) in zip(self.units, self._targets.items(), strict=True)
        ]
        return as_logits(self.deep(torch.cat((side_by_side(dense, embeddings), *interests), dim=1)))


class AttentionUnit(nn.Module):
    """The paper's local activation unit: an MLP weighs each row of a history by the row and the target.

    The weights are not normalised over a history (section 4.3): their sum says how strong an interest is. So a row's
    weight depends on no other row, and the rows are taken one after the other, without padding.

    The MLP reads the target, the row, their difference and their product, number by number, as in the authors' code.
    The paper has an outer product in place of the last two.

    Args:
        mlp: from 4 D inputs to a weight.
    """

    def __init__(self, mlp: MLP) -> None:
        super().__init__()
        self.mlp = mlp

    def forward(self, targets: Tensor, history: SequenceRows) -> Tensor:
        """The weighted sum of each sample's rows; zeros without rows.

        Args:
            targets: float32 `[B, D]`.
            history: rows float32 `[V, D]`, lengths `[B]`.

        Returns:
            float32 `[B, D]`.
        """
        rows = history.rows
        samples = torch.repeat_interleave(history.lengths, output_size=rows.shape[0])
        target = targets.index_select(0, samples)
        weights = self.mlp(torch.cat((target, rows, target - rows, target * rows), dim=1))
        return torch.zeros_like(targets).index_add(0, samples, weights * rows)


def _prelu_mlp(widths: list[int], generator: torch.Generator) -> MLP:
    return make_mlp(widths, glorot_normal, generator, last_is_linear=True, activation=nn.PReLU)


def _check_attention(attention: Mapping[str, str], facts: ModelFacts) -> None:
    """Check that there is a sequence, and that each has a target, which is pooled and of its width."""
    sequences = [feature.name for feature in facts.sequences]
    pooled = [feature.name for feature in facts.pooled]
    said = f"model.attention = {dict(attention)!r}"
    if not sequences:
        raise ConfigError(
            f"model.name = 'din': needs a sequence, and all features are pooled ({', '.join(pooled)}); set "
            'features.pooling_of = { history = "sequence" }, with your feature in place of history'
        )
    for history, target in attention.items():
        if history not in sequences:
            raise ConfigError(
                f"{said}: {history!r} is no sequence; the sequences are {', '.join(sequences)}; set "
                f'features.pooling_of = {{ {history} = "sequence" }} if the data has it, or leave it out'
            )
        if target not in pooled:
            known = f"use one of {', '.join(pooled)}"
            if not pooled:
                known = f'all features are sequences: pool one, as features.pooling_of = {{ {target} = "sum" }}'
            raise ConfigError(f"{said}: {target!r} is no pooled feature; {known}")
    widths = {feature.name: feature.width for feature in facts.features}
    for history, target in attention.items():
        if widths[history] != widths[target]:
            raise ConfigError(
                f"{said}: rows of {history} have {widths[history]} numbers and those of {target} {widths[target]}; "
                "give their tables one width in model.embedding_dim_of"
            )
    for name in sequences:
        if name not in attention:
            target = pooled[0] if pooled else "item"
            raise ConfigError(
                f'{said}: says nothing of the sequence {name}; name its target, as {{ {name} = "{target}" }}, or set '
                f'features.pooling_of = {{ {name} = "sum" }}'
            )
