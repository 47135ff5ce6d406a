"""What a row costs with every device, once a host, or at one device, and which rows should be in which tier. Pure.

Looked-up vectors of a sequence cannot be summed before they are sent, so what a row costs grows with its look-ups,
unless it is at hand. G devices stand on N hosts, g = G/N each; a row has r bytes, and a device looks it up n times a
batch. On average over the devices, each sends and takes in

    tier A, with every device   2r (G-1)/G between hosts: its gradients are summed over all
    tier B, once a host         2nr (g-1)/g within the host, there and back;
                                2r (N-1)/N / g between hosts: owners sum, and a host's devices share owning
    tier C, once                2nr (G-g)/G between hosts; 2nr (g-1)/G within the host

and holds r, r/g and r/G bytes. On a single host nothing goes between hosts. Where links within hosts are at least as
fast, a look-up costs least in A and most in C. So of rows of one size those that are looked up most belong into A and
the next ones into B, however many these are (by the rearrangement inequality): two thresholds say all.

Legend: `R` rows.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.array_file import Int64s

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Links:
    """Devices and what connects them.

    Attributes:
        devices: number G.
        hosts: number N, a divisor of G.
        within_bytes_s: bytes a second of a device's link within its host.
        between_bytes_s: the same between hosts.
    """

    devices: int
    hosts: int
    within_bytes_s: float
    between_bytes_s: float

    @property
    def of_host(self) -> int:
        """Devices g of a host."""
        return self.devices // self.hosts

    def bytes_in_tiers(self, look_ups: Floats, row_bytes: Int64s) -> tuple[Floats, Floats]:
        """What each row costs a device in each tier, on average.

        Args:
            look_ups: n of each row: of one device and batch, `[R]`.
            row_bytes: r of each row, `[R]`.

        Returns:
            Bytes within hosts and between hosts, float64 `[3, R]` each.
        """
        all_devices, hosts, of_host = self.devices, self.hosts, self.of_host
        sent, none = 2 * look_ups * row_bytes, np.zeros(len(look_ups))
        within = np.stack([none, sent * (of_host - 1) / of_host, sent * (of_host - 1) / all_devices])
        summed = 2.0 * row_bytes
        between = np.stack(
            [
                summed * (all_devices - 1) / all_devices,
                summed * (hosts - 1) / hosts / of_host,
                sent * (all_devices - of_host) / all_devices,
            ]
        )
        if hosts == 1:  # sums of tier A stay within the host
            within[0], between[0] = between[0], 0.0
        return within, between

    def seconds(self, look_ups: Floats, row_bytes: Int64s) -> Floats:
        """Seconds of a batch that each row costs in each tier, float64 `[3, R]`."""
        within, between = self.bytes_in_tiers(look_ups, row_bytes)
        found: Floats = within / self.within_bytes_s + between / self.between_bytes_s
        return found

    def further_bytes(self, row_bytes: Int64s, *, keeps_place: bool) -> Floats:
        """Memory of a device that each row takes in each tier, beside what it takes where each row is held once.

        Args:
            row_bytes: r of each row, `[R]`.
            keeps_place: whether the row stays at its place besides its copies; if not, that place is one of theirs.
        """
        held = np.array([1.0, 1 / self.of_host, 1 / self.devices])
        held -= 0.0 if keeps_place else held[2]
        held[2] = 0.0
        return held[:, np.newaxis] * row_bytes


@dataclass(frozen=True)
class Tiers:
    """Two thresholds in the order of look-ups.

    Attributes:
        first_b: so many rows are in tier A.
        first_c: so many are in A and B.
        seconds: of a batch, by the model.
    """

    first_b: int
    first_c: int
    seconds: float


def choose_tiers(
    links: Links,
    look_ups: Floats,
    row_bytes: Int64s,
    spare_bytes: float,
    *,
    keeps_place: bool = False,
    has_tier_b: bool = True,
) -> Tiers:
    """The thresholds with the least modelled time that fit.

    Args:
        links: the devices.
        look_ups: n of each row, falling, `[R]`.
        row_bytes: r of each row, `[R]`.
        spare_bytes: memory of a device beside what plain sharding takes.
        keeps_place: as for `Links.further_bytes`.
        has_tier_b: whether a row may be held once a host.
    """
    seconds = _summed(links.seconds(look_ups, row_bytes))
    memory = _summed(links.further_bytes(row_bytes, keeps_place=keeps_place))
    first_b = np.arange(len(look_ups) + 1)
    fits = memory[0] <= spare_bytes
    first_c = first_b
    if has_tier_b:
        wanted = int(np.argmin(seconds[1] - seconds[2]))  # rows before it are cheaper in B than in C
        room = np.searchsorted(memory[1], spare_bytes - memory[0] + memory[1], side="right") - 1
        first_c = np.maximum(first_b, np.minimum(wanted, room))
    found = seconds[0] + (seconds[1][first_c] - seconds[1]) + (seconds[2][-1] - seconds[2][first_c])
    best = int(np.argmin(np.where(fits, found, np.inf)))
    return Tiers(best, int(first_c[best]), float(found[best]))


def _summed(of_rows: Floats) -> Floats:
    """Sums over the first 0, 1, ... R rows, `[3, R + 1]`."""
    return np.concatenate((np.zeros((3, 1)), np.cumsum(of_rows, axis=1)), axis=1)
