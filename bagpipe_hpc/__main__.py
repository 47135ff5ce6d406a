"""`python -m bagpipe_hpc` is `bagpipe`; a launcher such as mpirun can name this interpreter."""

import sys

from bagpipe_hpc.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
