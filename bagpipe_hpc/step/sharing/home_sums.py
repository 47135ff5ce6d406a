"""Sums of gradients at the homes of rows; where a row is held once a host, the sum goes on from host to host.

Legend: `n` rows that this home sums, `D` numbers of a row.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.kernels.rows.short_floats import ShortFloats
from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.mpi.rows.exchange import Arrival
from bagpipe_hpc.mpi.rows.host_chain import ChainedSum, HostChain
from bagpipe_hpc.plan.exchange import Summed, pieces

_ROUNDED_TOTAL_FROM = 3
"""Trainers from which on a replicated sum travels, and is rounded, once more."""


class HomeGradients(NamedTuple):
    """Gradients that are summed at this home, of one group of tables.

    Attributes:
        group: of tables, from 0.
        summed: which rows, and whose gradients.
        of_host: trainers of each host, where some of the rows are held once a host.
        own: this trainer's contribution, float32 `[own, D]` on the device, rounded as those that travel.
        arrival: those of the others, and room for its own between them.
    """

    group: int
    summed: Summed
    of_host: int
    own: Tensor
    arrival: Arrival


class HomeTotal(NamedTuple):
    """A sum at this home, which is complete unless it goes over hosts.

    Attributes:
        group: of tables, from 0.
        slots: of the rows, on the device, `[n]`.
        sums: one tensor as soon as it is there, float32 `[n, D]`: over the trainers whose gradients come to this home,
            and, of the first rows, over those of earlier hosts.
        over_hosts: the sum of the first rows over all hosts; None where no row is held once a host.
    """

    group: int
    slots: Tensor
    sums: list[Tensor]
    over_hosts: ChainedSum | None

    def is_complete(self) -> bool:
        """Whether the sums are those of all trainers; asked several times, but never waited for."""
        return self.over_hosts is None or self.over_hosts.is_complete()

    def awaited(self) -> list[Awaited]:
        """What `is_complete` goes on behind; for the thread that calls that."""
        return self.over_hosts.awaited() if self.over_hosts else []


class HomeSums:
    """Sums what has come to this home, over the trainers in their order, from zero: the bits of a replicated sum.

    Args:
        caches: rows on the device, of each group of tables.
        trainer: number of this one.
        trainers: number of trainers T.
        short: how gradients travel; None for float32.
    """

    def __init__(self, caches: Sequence[RowCache], trainer: int, trainers: int, short: ShortFloats | None) -> None:
        self._caches = caches
        self._device = caches[0].device
        self._trainer, self._trainers = trainer, trainers
        self._short = short

    def rounded(self, gradients: Tensor) -> Tensor:
        """Gradients as they would be had they travelled."""
        return gradients if self._short is None else self._short.rounded(gradients)

    def begin(self, coming: HomeGradients, chain: HostChain) -> HomeTotal:
        """Sum gradients that are all here.

        Args:
            coming: the gradients.
            chain: takes sums of rows that are held once a host from host to host.
        """
        arrived: NDArray[Any] = coming.arrival.rows
        if self._short is not None:
            arrived = self._short.unpack(arrived, self._device.new_array(arrived.shape))
        summed, cache = coming.summed, self._caches[coming.group]
        gradients, slots = self._device.to_device(arrived), self._device.to_device(summed.slots)
        gradients[pieces(summed.sources)[self._trainer]] = coming.own
        places, hosted = self._device.to_device(summed.places), summed.hosted
        if not hosted:
            return HomeTotal(coming.group, slots, [cache.sum_gradients(gradients, places, len(slots))], None)
        sums: list[Tensor] = []

        def add(earlier: NDArray[np.float32] | None) -> NDArray[np.float32]:
            """What earlier hosts have stands before the gradients of this one, and is added first."""
            parts, rows = [gradients], [places]
            if earlier is not None:
                parts.insert(0, self._device.to_device(earlier))
                rows.insert(0, torch.arange(hosted, dtype=places.dtype, device=places.device))
            sums.append(cache.sum_gradients(torch.cat(parts), torch.cat(rows), len(slots)))
            return self._device.to_host(sums[0][:hosted])

        over_hosts = chain.start(coming.of_host, (hosted, cache.width), add)
        return HomeTotal(coming.group, slots, sums, over_hosts)

    def of(self, total: HomeTotal) -> Tensor:
        """The sums, once they are complete, float32 `[n, D]`."""
        (sums,) = total.sums
        if total.over_hosts is not None:
            of_hosts = self._device.to_device(total.over_hosts.total)
            sums[: len(of_hosts)] = of_hosts
        return self.rounded(sums) if self._trainers >= _ROUNDED_TOTAL_FROM else sums
