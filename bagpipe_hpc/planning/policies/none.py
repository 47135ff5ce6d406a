"""No cache, `none`: every batch fetches its rows and writes them back; the baseline for all other policies."""

from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.window import Window


class NoCache(LookaheadPolicy):
    """The look-ahead rule without look-ahead: no row stays, and fetches wait until the batch before is written back.

    BagPipe's published code uses the same, L = 1, as its baseline without a cache.
    """

    def window(self, wanted: Window) -> Window:  # noqa: ARG002
        """One batch, whatever is wanted."""
        return Window(1, 1)
