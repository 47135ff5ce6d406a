"""Whether trainers stand on hosts as a plan of rows supposes: so many after one another on each. Pure."""

from collections.abc import Sequence


def unlike_plan(hosts: Sequence[int], of_host: int) -> str:
    """A warning for trainers that should share a host and do not; empty if all do.

    Results are the same, but what should stay within a host goes over the network.

    Args:
        hosts: of each trainer, in their order; equal numbers are one host.
        of_host: trainers of a host.
    """
    for first in range(0, len(hosts), of_host):
        found = len(set(hosts[first : first + of_host]))
        if found > 1:
            return (
                f"the plan holds rows once for trainers {first} to {first + of_host - 1}, which are on {found} hosts, "
                f"so that copies go over the network: start {of_host} trainers on each host, or place rows again with "
                "tables.trainer_hosts as it is here"
            )
    return ""
