"""Samples of which some look up hot rows alone, and the batches of an epoch of them, for tests of `fae`."""

from functools import partial
from pathlib import Path

import numpy as np

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.sample_order import SampleOrder
from bagpipe_hpc.plan.section_order import SectionOrder
from bagpipe_hpc.planning.policies.fae.order import LayOut, sections
from bagpipe_hpc.planning.policies.fae.policy import FaePolicy
from bagpipe_hpc.planning.policies.fae.profile import all_hot, hottest, profile_path
from bagpipe_hpc.planning.policies.fae.settings import FaeSettings
from bagpipe_hpc.planning.policy import RunFacts, TrainingRows
from bagpipe_hpc.storage.shards.hot_rows import HotRows

OFFSETS = np.asarray([0, 30, 60, 63])
BLOCK_ROWS = 16
"""As `check_policy` has them."""
DIGEST = "of these samples"


def drawn_samples(seed: int, count: int) -> Bags:
    """Skewed rows of three tables."""
    rng = np.random.default_rng(seed)
    sizes = np.diff(OFFSETS)
    return Bags.one_hot(OFFSETS[:-1] + (sizes * rng.random((count, sizes.size)) ** 4).astype(np.int64))


def profile_of(samples: Bags, budget_rows: int, sample_percent: float = 5.0) -> HotRows:
    """The profile, from the look-ups of all samples."""
    total_rows = int(OFFSETS[-1])
    rows = hottest(np.bincount(samples.values, minlength=total_rows), budget_rows)
    hot = np.packbits(all_hot(samples, np.isin(np.arange(total_rows), rows)))
    return HotRows(DIGEST, total_rows, budget_rows, sample_percent, 1, samples.samples, rows, hot)


def policy_of(
    directory: Path,
    samples: Bags,
    budget_rows: int,
    *,
    batch_size: int,
    trainers: int = 2,
    share_percent: int = 100,
    evaluated_every: int = 0,
) -> FaePolicy:
    """The policy for these samples, with their profile in a folder; its share adapts where there are evaluations."""
    training = TrainingRows(str(directory), DIGEST, batch_size, seed=1, evaluated_every=evaluated_every)
    settings = FaeSettings(hot_rows=budget_rows, share_percent=share_percent, adapt_share=evaluated_every > 0)
    profile_of(samples, budget_rows).save(profile_path(settings, training))
    facts = RunFacts(OFFSETS, trainers, batch_size, seed=1, training=training)
    return FaePolicy(settings, facts)


def in_turns(batch_size: int, share_percent: int) -> LayOut:
    """Sections of a fixed share."""
    return partial(sections, batch_size=batch_size, share_percent=share_percent)


def samples_in_order(order: SampleOrder | SectionOrder) -> np.ndarray:
    """The numbers of an order's samples, in order."""
    return np.concatenate([np.empty(0, dtype=np.int64), *order.used()])


def batches_of(policy: FaePolicy, samples: Bags) -> list[Bags]:
    """The batches of the first epoch."""
    training = policy.facts.training
    assert training is not None
    default = SampleOrder(samples.samples, BLOCK_ROWS, policy.facts.seed, 0)
    numbers = samples_in_order(policy.order(policy.settings, default, training))
    size = training.batch_size
    return [samples.take(numbers[first : first + size]) for first in range(0, numbers.size, size)]
