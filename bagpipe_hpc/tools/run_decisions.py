"""What a run decides as it trains, which makes it move other rows than plans that are made beforehand."""

from bagpipe_hpc.run.run import Run


def run_decisions(run: Run) -> list[str]:
    """What a run's policy decides as it trains, in words; empty where runs move the rows of their plans."""
    decisions = []
    if any(segment.shows_rows for segment in run.schedule):
        decisions.append("leaves samples out as it trains, and takes fewer steps; all are planned here")
    if any(segment.is_heard for segment in run.schedule):
        decisions.append("orders samples by evaluations as it trains; here they come as if these changed nothing")
    return decisions
