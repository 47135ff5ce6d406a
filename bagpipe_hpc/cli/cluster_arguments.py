"""Arguments that describe what is not at hand, a model's pace and a cluster's, for the commands that predict a run."""

from bagpipe_hpc.cli.argument_types import microseconds, named_path
from bagpipe_hpc.cli.command_parser import CommandParser


def add_sample_time(parser: CommandParser, *, required: bool) -> None:
    """How long a trainer computes: a sample, measured by a run or given, and a step beside its samples."""
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
        help="time of a step beyond its samples, which counts where slices are small (0)",
    )


def add_delays(parser: CommandParser) -> None:
    """How long messages are on their way, and how long the oracle takes."""
    parser.add_argument("--latency-us", type=microseconds, default=50.0, metavar="US", help="one way (50)")
    parser.add_argument(
        "--oracle-us-per-sample",
        type=microseconds,
        default=0.5,
        metavar="US",
        help="time of the oracle to read and plan a sample (0.5: one core)",
    )
