"""`bagpipe simulate`: the steps of a run on a cluster that is not at hand."""

from argparse import Namespace

from bagpipe_hpc.cli.arguments.cluster import add_compute_time, add_delays, compute_time_of
from bagpipe_hpc.cli.arguments.parser import CommandParser, add_config
from bagpipe_hpc.cli.arguments.types import (
    fraction,
    gbit_per_s,
    microseconds,
    named_path,
    nodes_or_none,
    positive,
    positive_number,
)
from bagpipe_hpc.cli.command import Command
from bagpipe_hpc.errors import require_appendable
from bagpipe_hpc.exit_codes import EXIT_OK


def _add_arguments(parser: CommandParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--rows", type=positive, metavar="N", help="draw ids of tables with N rows in all (default: those of data.path)"
    )
    parser.add_argument("--zipf", type=positive_number, metavar="A", help="skew of the drawn ids, with --rows (1.05)")
    add_compute_time(parser, required=True)
    parser.add_argument(
        "--trainers",
        type=positive,
        nargs="+",
        default=[1, 2, 4, 8, 16],
        metavar="T",
        help="numbers of trainers (default: 1 2 4 8 16)",
    )
    parser.add_argument(
        "--lookahead", type=positive, nargs="+", metavar="L", help="windows, in batches (default: 1 and the setting)"
    )
    parser.add_argument(
        "--trainers-per-host", type=positive, default=1, metavar="N", help="trainers that share a host (default: 1)"
    )
    parser.add_argument(
        "--server-hosts",
        type=nodes_or_none,
        default=2,
        metavar="N",
        help="hosts that hold servers; 0: all ranks on one host (default: 2)",
    )
    parser.add_argument("--gbit-per-s", type=gbit_per_s, default=10.0, metavar="X", help="speed of a host's link (10)")
    add_delays(parser)
    parser.add_argument(
        "--message-us",
        type=microseconds,
        default=5.0,
        metavar="US",
        help="a trainer's time to exchange rows with one other (5)",
    )
    parser.add_argument(
        "--moments",
        type=fraction,
        nargs="+",
        metavar="SHARE",
        help="part of a step's compute after the gradients of rows, and after each sum's (default: by the weights)",
    )
    parser.add_argument(
        "--batches", type=positive, metavar="N", help="batches to average over (default: 100, or what the data has)"
    )
    parser.add_argument("--save", type=named_path, metavar="FILE", help="append the JSON line to FILE")


def _simulate(arguments: Namespace) -> int:
    from bagpipe_hpc.tools.simulate.simulate import SimulationRequest, simulate

    if arguments.save:
        require_appendable(arguments.save)
    request = SimulationRequest(
        config=arguments.config,
        overrides=arguments.overrides,
        rows=arguments.rows,
        zipf=arguments.zipf,
        compute=compute_time_of(arguments),
        trainers=arguments.trainers,
        lookahead=arguments.lookahead,
        trainers_per_host=arguments.trainers_per_host,
        server_hosts=arguments.server_hosts,
        gbit_per_s=arguments.gbit_per_s,
        latency_us=arguments.latency_us,
        oracle_us_per_sample=arguments.oracle_us_per_sample,
        message_us=arguments.message_us,
        moments=arguments.moments,
        batches=arguments.batches,
    )
    simulate(request).finish(arguments.save)
    return EXIT_OK


SIMULATE = Command("simulate", "predict the steps of a run on a cluster that is not at hand", _add_arguments, _simulate)
