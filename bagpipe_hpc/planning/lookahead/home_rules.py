"""The look-ahead rules for rows with one home, in NumPy: what `cache.sharing = "home"` plans.

BagPipe's cache is logically replicated and physically partitioned (SOSP 2023, section 3). A resident row has one *home*
trainer, which alone fetches it, updates it and writes it back. Any other trainer whose slice of a batch uses the row
gets a *copy* of its weights for that batch and sends its gradients home. For batch x:

    home     of a row that is fetched: one of the trainers that use it in x. They take such rows in turn; but a row of
             many users goes to the one that has the least to exchange of such rows of x so far (`homes.choice`)
    solo     rows of U[x] that their home alone uses: updated by it at once
    now      the others of U[x] & U[x + 1]: gradients go home, the update is made and copies leave before x + 1 starts
    later    the others: gradients travel behind x + 1, and are applied before rest(x + 2) leaves
    copies   for x come in two parts: of U[x - 1] & U[x], after the update of x - 1; rest(x), the others, after
             later(x - 2) has been applied and the rows of x have been fetched
"""

from bagpipe_hpc.planning.batch_rows import Bools, LoadedBatch
from bagpipe_hpc.planning.homes.planner import ExchangePlanner
from bagpipe_hpc.planning.homes.slots import UsedBatch
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner


class HomePlanner(ExchangePlanner, LookaheadPlanner):
    """The look-ahead rules for rows with one home each; the arguments are those of `ExchangePlanner`."""

    def copied_now(self, batch: UsedBatch, following: LoadedBatch | None) -> Bools | None:
        """Rows of the next batch that this one updates: their copies leave when it has; None where there is none."""
        if following is None or self.window.delays_nothing or not self._training:
            return None
        return self.rows.are_in(following.unique, batch.unique)
