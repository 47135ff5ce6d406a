"""`bagpipe generate-graph` and `bagpipe prepare-graph`: graphs whose nodes have rows."""

from argparse import Namespace

from bagpipe_hpc.cli.arguments.parser import CommandParser
from bagpipe_hpc.cli.arguments.types import count, fraction, named_path, path_text, positive, positive_number
from bagpipe_hpc.cli.command import Command
from bagpipe_hpc.cli.streams import tell
from bagpipe_hpc.exit_codes import EXIT_OK


def _add_generate_graph(parser: CommandParser) -> None:
    parser.add_argument("--nodes", type=positive, required=True, metavar="N", help="number of nodes")
    parser.add_argument("--output", type=named_path, required=True, metavar="DIR", help="for edges.tsv and nodes.csv")
    parser.add_argument(
        "--degree", type=positive_number, default=10.0, metavar="D", help="neighbours of a node, on average (10)"
    )
    parser.add_argument("--zipf", type=positive_number, default=0.8, metavar="A", help="skew of the degrees (0.8)")
    parser.add_argument("--seed", type=count, default=1, metavar="S", help="same seed, same graph (default: 1)")


def _generate_graph(arguments: Namespace) -> int:
    from data_prep.synthetic.graph import generate_graph

    generate_graph(arguments.nodes, arguments.output, degree=arguments.degree, zipf=arguments.zipf, seed=arguments.seed)
    return EXIT_OK


def _add_prepare_graph(parser: CommandParser) -> None:
    parser.add_argument(
        "--edges",
        type=path_text,
        nargs="+",
        required=True,
        metavar="FILE",
        help="text, two node numbers a line, plain or compressed",
    )
    parser.add_argument(
        "--nodes",
        type=path_text,
        required=True,
        metavar="FILE.csv",
        help="a sample a line: node, labels, numbers; with a header",
    )
    parser.add_argument("--output", type=named_path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--label",
        nargs="+",
        default=["label"],
        metavar="COLUMN",
        help="columns of labels, 0 and 1 or classes from 0 (default: label)",
    )
    parser.add_argument("--directed", action="store_true", help="the second node of an edge is the first's neighbour")
    parser.add_argument(
        "--node-count", type=positive, metavar="N", help="number of nodes (default: the highest node number + 1)"
    )
    parser.add_argument(
        "--test-fraction", type=fraction, default=0.1, metavar="F", help="last part of the samples (default: 0.1)"
    )
    parser.add_argument(
        "--rows-per-shard", type=positive, default=1 << 20, metavar="N", help="nodes of a shard (default: 1048576)"
    )


def _prepare_graph(arguments: Namespace) -> int:
    from data_prep.graphs.prepare import prepare_graph

    prepare_graph(
        arguments.edges,
        arguments.nodes,
        arguments.output,
        labels=arguments.label,
        directed=arguments.directed,
        node_count=arguments.node_count,
        test_fraction=arguments.test_fraction,
        rows_per_shard=arguments.rows_per_shard,
        progress=tell,
    )
    return EXIT_OK


GENERATE_GRAPH = Command(
    "generate-graph", "write a synthetic graph, to try training on one", _add_generate_graph, _generate_graph
)
PREPARE_GRAPH = Command(
    "prepare-graph", "turn edges and nodes into a graph and shards for training", _add_prepare_graph, _prepare_graph
)
