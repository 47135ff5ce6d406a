"""Puts a planner with a broken rule in the place of the oracle's."""

from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window
from tests.end_to_end.faults import Breakage, Patch


def use_planner(mutant: type[LookaheadPlanner]) -> Breakage:
    """Let the oracle plan with a broken rule; the cache's need is still measured with the sound one."""
    sound_planner = LookaheadPolicy.planner

    def planner(
        policy: LookaheadPolicy, window: Window, shared_capacity: int = UNLIMITED, private_capacity: int = UNLIMITED
    ) -> Planner:
        if shared_capacity == UNLIMITED:
            return sound_planner(policy, window)
        facts = policy.facts
        return mutant(facts.total_rows, facts.trainers, window, shared_capacity, private_capacity, verify=facts.verify)

    def install(patch: Patch) -> None:
        patch(LookaheadPolicy, "planner", planner)

    return install
