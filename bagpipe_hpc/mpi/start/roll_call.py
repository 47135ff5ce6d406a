"""A barrier that knows who is missing: every rank reports to rank 0, which lets them go on."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from mpi4py import MPI

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.mpi.time_limit import NETWORK_CURE
from bagpipe_hpc.mpi.waiting import LATE_SHARE, wait_for_all

_TAG_HERE, _TAG_GO = 71, 72
_LATER = 1.5
"""The other ranks wait so many times as long as rank 0, which alone knows who is missing and shall say so first."""
_SHOWN_RANKS = 8


def call_roll(
    comm: MPI.Intracomm, what: str, timeout_s: float, hosts: Sequence[str] = (), names: Sequence[str] = ()
) -> None:
    """Wait for all ranks. Collective over: `comm`.

    Args:
        comm: the ranks; nothing else on it uses the tags of this file.
        what: what they have just done, as the error says it.
        timeout_s: how long rank 0 waits for them.
        hosts: name of each rank's host, where it is known.
        names: what to call each rank, where it is more than a number.

    Raises:
        WaitTimeoutError: a rank did not report; on rank 0 the message names it, elsewhere rank 0.
    """
    here, go = np.zeros(1, dtype=np.uint8), np.zeros(1, dtype=np.uint8)
    let_go = comm.Irecv(go, 0, _TAG_GO)
    sent = [comm.Isend(here, 0, _TAG_HERE)]
    size = comm.Get_size()
    if comm.Get_rank() == 0:
        arrived = np.zeros(size, dtype=np.uint8)
        arrivals = [comm.Irecv(arrived[rank : rank + 1], rank, _TAG_HERE) for rank in range(size)]
        try:
            wait_for_all(arrivals, what, timeout_s, late_share=LATE_SHARE)
        except WaitTimeoutError:
            silent = [rank for rank, arrival in enumerate(arrivals) if not arrival.Test()]
            raise _no_word(silent, what, timeout_s, hosts, names) from None
        sent += [comm.Isend(here, rank, _TAG_GO) for rank in range(size)]
    try:
        wait_for_all([*sent, let_go], what, _LATER * timeout_s, late_share=LATE_SHARE)
    except WaitTimeoutError:
        raise _no_word([0], what, _LATER * timeout_s, hosts, names) from None


def _no_word(
    silent: Sequence[int], what: str, timeout_s: float, hosts: Sequence[str], names: Sequence[str]
) -> WaitTimeoutError:
    ranks: dict[str, list[str]] = defaultdict(list)
    for rank in silent:
        ranks[hosts[rank] if hosts else ""].append(names[rank] if names else str(rank))
    places = []
    for host, members in ranks.items():
        more = [f"{len(members) - _SHOWN_RANKS} more"] if len(members) > _SHOWN_RANKS else []
        named = ", ".join([*members[:_SHOWN_RANKS], *more])
        if not names:
            named = f"rank{'s' if len(members) > 1 else ''} {named}"
        places.append(f"{host} ({named})" if host else named)
    return WaitTimeoutError(
        f"{', '.join(places)}: no word of {what} within {timeout_s:.0f} s: a rank is stopped, {NETWORK_CURE}"
    )
