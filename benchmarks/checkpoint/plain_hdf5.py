"""What h5py itself takes for the bytes of a server's row file.

    python benchmarks/checkpoint/plain_hdf5.py FILE ROWS D K

Writes weights `[ROWS, D]` and state `[ROWS, K]`, float32, each in one call, forces them to the disk, reads them back in
one call each, and prints two numbers: seconds to write and seconds to read.
"""

import os
import sys
import time

import h5py
import numpy as np


def main() -> None:
    path, (rows, *widths) = sys.argv[1], map(int, sys.argv[2:])
    arrays = {
        name: np.ones((rows, width), np.float32) for name, width in zip(("weights", "state"), widths, strict=True)
    }
    start = time.perf_counter()
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    written_s = time.perf_counter() - start
    start = time.perf_counter()
    with h5py.File(path, "r") as file:
        for name, array in arrays.items():
            file[name].read_direct(array)
    print(written_s, time.perf_counter() - start)


if __name__ == "__main__":
    main()
