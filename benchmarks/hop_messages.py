"""Do the messages of a hop travel while the next ones begin?

    scripts/run_ranks.sh 2 python benchmarks/hop_messages.py
    scripts/emulated_hosts.sh --ranks 1,1 --bandwidth 10gbit scripts/run_ranks.sh 2 python benchmarks/hop_messages.py

Two ranks, one a core, take each other for many, and exchange the same bytes in more and more messages by one call, as a
hop of `mpi/reduction.py` and the first of `mpi/rows/exchange.py` do; both test without sleeping. Prints the median
microseconds until all have come, beside what two models say: the messages and then their bytes, or whichever takes
longer. Each takes the messages' time from such with 4 bytes each, and the bytes' time from one message. The last line
is one JSON object.
"""

import argparse
import json
import statistics
import time

import numpy as np
from mpi4py import MPI

from bagpipe_hpc.tools.conditions import conditions

WARM_UP = 5


def exchanged_us(messages: int, sent_bytes: int, repeats: int) -> float:
    """Exchange that many messages of together that many bytes. Collective over: both ranks."""
    comm = MPI.COMM_WORLD
    others = [1 - comm.Get_rank()] * messages
    neighbours = comm.Create_dist_graph_adjacent(others, others)
    count = max(1, sent_bytes // 4 // messages)
    counts, starts = [count] * messages, [count * number for number in range(messages)]
    sent, taken = (np.zeros(count * messages, dtype=np.float32) for _ in range(2))
    samples = []
    for _ in range(WARM_UP + repeats):
        comm.Barrier()
        start_s = time.perf_counter()
        request = neighbours.Ineighbor_alltoallv([sent, counts, starts, MPI.FLOAT], [taken, counts, starts, MPI.FLOAT])
        while not request.Test():
            pass
        samples.append(1e6 * (time.perf_counter() - start_s))
    neighbours.Free()
    return statistics.median(samples[WARM_UP:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=60, help="exchanges, of which the median counts (default: 60)")
    parser.add_argument("--kib", type=int, nargs="+", default=[64, 256, 1024, 4096], metavar="N", help="each way")
    parser.add_argument("--messages", type=int, nargs="+", default=[7, 15, 63, 255], metavar="N", help="each way")
    arguments = parser.parse_args()
    if MPI.COMM_WORLD.Get_size() != len(("one", "other")):
        parser.error("start it on two ranks")
    begun_us = {count: exchanged_us(count, 4 * count, arguments.repeats) for count in arguments.messages}
    found = []
    for kib in arguments.kib:
        alone_us = exchanged_us(1, kib << 10, arguments.repeats)
        for count in arguments.messages:
            us = exchanged_us(count, kib << 10, arguments.repeats)
            added_us, longer_us = begun_us[count] + alone_us, max(begun_us[count], alone_us)
            found.append({"kib": kib, "messages": count, "us": us, "added_us": added_us, "longer_us": longer_us})
            if MPI.COMM_WORLD.Get_rank() == 0:
                print(
                    f"{kib:5d} KiB in {count:3d} messages: {us:6.0f} us; messages {begun_us[count]:5.0f} and bytes "
                    f"{alone_us:6.0f}: together {added_us:6.0f}, the longer {longer_us:6.0f}",
                    flush=True,
                )
    if MPI.COMM_WORLD.Get_rank() == 0:
        print(json.dumps({"benchmark": "hop_messages", **conditions(), "exchanges": found}))


if __name__ == "__main__":
    main()
