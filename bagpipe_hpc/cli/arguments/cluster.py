"""Arguments of the commands that predict a run: how fast a model computes, and how slow a cluster's messages are."""

from argparse import Namespace
from typing import TYPE_CHECKING

from bagpipe_hpc.cli.arguments.parser import CommandParser
from bagpipe_hpc.cli.arguments.types import microseconds, named_path

if TYPE_CHECKING:
    from bagpipe_hpc.tools.simulate.compute_time import ComputeTime


def add_compute_time(parser: CommandParser, *, required: bool) -> None:
    """Add a trainer's compute time: for a sample, as given or measured by a run, and for a step beside its samples."""
    compute = parser.add_mutually_exclusive_group(required=required)
    compute.add_argument(
        "--calibrate", type=named_path, metavar="RUN", help="take the time of a sample from RUN's output"
    )
    compute.add_argument("--compute-us-per-sample", type=microseconds, metavar="US", help="time of a sample")
    parser.add_argument(
        "--compute-us-per-step",
        type=microseconds,
        default=0.0,
        metavar="US",
        help="time of a step that does not grow with its samples; matters where slices are small (0)",
    )


def compute_time_of(arguments: Namespace) -> "ComputeTime":
    """What was given of it."""
    from bagpipe_hpc.tools.simulate.compute_time import ComputeTime

    return ComputeTime(arguments.calibrate, arguments.compute_us_per_sample, arguments.compute_us_per_step)


def add_delays(parser: CommandParser) -> None:
    """Add how long messages are on their way, and how long the oracle takes."""
    parser.add_argument("--latency-us", type=microseconds, default=50.0, metavar="US", help="of a link, one way (50)")
    parser.add_argument(
        "--oracle-us-per-sample",
        type=microseconds,
        default=0.5,
        metavar="US",
        help="the oracle's time to read and plan a sample of a batch (0.5: one core)",
    )
