"""`bagpipe plan`: what a run would do, before it starts."""

from argparse import Namespace

from bagpipe_hpc.cli.arguments.cluster import add_compute_time, add_delays, compute_time_of
from bagpipe_hpc.cli.arguments.parser import CommandParser, add_config
from bagpipe_hpc.cli.arguments.types import gbit_per_s, gigabytes, named_path, nodes, nodes_or_none, positive
from bagpipe_hpc.cli.command import Command
from bagpipe_hpc.cli.forecasts.comparisons import check_plot
from bagpipe_hpc.cli.streams import tell
from bagpipe_hpc.errors import ConfigError, require_appendable
from bagpipe_hpc.exit_codes import EXIT_OK


def _add_arguments(parser: CommandParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--trainers",
        type=positive,
        nargs="+",
        metavar="T",
        help="numbers of trainers (default: 2, or what --nodes have room for)",
    )
    parser.add_argument(
        "--lookahead",
        type=positive,
        nargs="+",
        metavar="L",
        help="window lengths, in batches (default: 1, the setting, and parts and multiples of it)",
    )
    parser.add_argument("--batches", type=positive, metavar="N", help="batches to plan of each segment (default: all)")
    add_compute_time(parser, required=False)
    parser.add_argument(
        "--gbit-per-s", type=gbit_per_s, nargs="+", default=[10.0], metavar="X", help="speeds of a node's link (10)"
    )
    add_delays(parser)
    parser.add_argument(
        "--server-nodes",
        type=nodes_or_none,
        default=1,
        metavar="N",
        help="nodes that hold servers; 0: all ranks on one node (default: 1)",
    )
    parser.add_argument(
        "--nodes", type=nodes, nargs="+", metavar="N", help="recommend servers and trainers for N nodes"
    )
    parser.add_argument(
        "--trainers-per-node", type=positive, default=1, metavar="N", help="most trainers on a node (default: 1)"
    )
    parser.add_argument(
        "--node-gb", type=gigabytes, default=64.0, metavar="GB", help="free memory of a node (default: 64)"
    )
    parser.add_argument(
        "--save",
        type=named_path,
        metavar="DIR",
        help="keep the plans for --trainers T in DIR, for a run with train.plans=DIR",
    )
    parser.add_argument("--plot", type=named_path, metavar="FILE.svg", help="draw how much is moved")
    parser.add_argument("--json", type=named_path, metavar="FILE", help="append the JSON line to FILE")


def _plan(arguments: Namespace) -> int:
    if arguments.save:
        _check_save(arguments)
    if arguments.plot:
        check_plot(arguments.plot)
    if arguments.json:
        require_appendable(arguments.json)
    from bagpipe_hpc.tools.forecast.forecast import ForecastRequest, forecast

    request = ForecastRequest(
        config=arguments.config,
        overrides=arguments.overrides,
        trainers=arguments.trainers,
        lookahead=arguments.lookahead,
        batches=arguments.batches,
        compute=compute_time_of(arguments),
        gbit_per_s=arguments.gbit_per_s,
        latency_us=arguments.latency_us,
        oracle_us_per_sample=arguments.oracle_us_per_sample,
        server_nodes=arguments.server_nodes,
        nodes=arguments.nodes,
        trainers_per_node=arguments.trainers_per_node,
        node_gb=arguments.node_gb,
        save=arguments.save,
        plot=arguments.plot,
    )
    forecast(request, tell).finish(arguments.json)
    return EXIT_OK


def _check_save(arguments: Namespace) -> None:
    """Check that `--save` asks for the plans of one run.

    Raises:
        ConfigError: it asks for several numbers of trainers, or for other windows or fewer batches than the run's.
    """
    if len(arguments.trainers or ()) != 1:
        raise ConfigError(f"--save {arguments.save}: plans are for one number of trainers; name it with --trainers T")
    others = {"--lookahead": arguments.lookahead, "--batches": arguments.batches, "--nodes": arguments.nodes}
    for option, value in others.items():
        if value:
            raise ConfigError(
                f"{option}: --save keeps all plans of a run with lookahead.batches as it is set; leave {option} out"
            )


PLAN = Command(
    "plan",
    "count what a run will move, hold and wait for, before it starts, and recommend settings",
    _add_arguments,
    _plan,
)
