"""No cache, `none`: every batch fetches its rows and writes them back, which all other policies are measured by."""

from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.window import Window


class NoCache(LookaheadPolicy):
    """The look-ahead rule without look-ahead: no row stays, and fetches wait for the batch before to be written back.

    BagPipe's published code takes the same, L = 1, for its baseline without a cache.
    """

    def window(self, wanted: Window) -> Window:  # noqa: ARG002
        """One batch, whatever is wanted."""
        return Window(1, 1)
