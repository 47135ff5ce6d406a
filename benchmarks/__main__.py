"""`python -m benchmarks`: measure the parts and the whole; see `docs/benchmarks.md`."""

import sys

from benchmarks.command import main

if __name__ == "__main__":
    sys.exit(main())
