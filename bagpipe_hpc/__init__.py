"""Train recommendation models whose embedding tables are too large for one trainer, over MPI.

The method is BagPipe's (SOSP 2023): an oracle rank reads the data ahead and tells the trainers which embedding
rows to fetch, keep, reduce and write back, so that remote rows cost nothing on the critical path and the result
is that of plain synchronous training. `docs/architecture.md` describes the design.
"""

__version__ = "0.1.0"
