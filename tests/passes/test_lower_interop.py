"""TensorFlow runs lowered graphs, and lowers the same graphs to no fewer nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import cfgraph
from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Graph
from cfgraph.ir.traversal import ancestors
from cfgraph.ops.opdef.op import is_functional
from tests.conformance import recorded
from tests.passes.random_programs import random_programs
from tests.passes.tf_sessions import feeds_of, imported, message_of
from tests.sampled import sampled

pytestmark = [pytest.mark.interop, pytest.mark.slow]

tf = pytest.importorskip("tensorflow", reason="needs the extra `interop`").compat.v1

CASES = recorded.parameters("session", recorded.is_functional)
# nodes that a run adds to a graph, and that TensorFlow removes after lowering
NOT_COUNTED = {"_Arg", "_Retval", "_Recv", "_Send", "_HostRecv", "_HostSend", "Placeholder"}
REMOVED = {"Identity", "IdentityN"}
# TensorFlow lowers only marked nodes, and none that are to be compiled
MARKED = {"If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"}
COMPILED = ("_XlaMustCompile", "_xla_compile_id", "_XlaCompile")


def last_graph(case: dict[str, Any]) -> Graph:
    graph = recorded.graph(case["runs"][-1]["graph"])
    if not is_functional(graph, graph):
        pytest.skip("nothing in it is functional")
    return graph


def lowered(graph: Graph) -> Graph:
    try:
        cfgraph.lower(graph)
    except Unsupported as error:
        pytest.skip(error.message)
    return graph


@pytest.mark.parametrize("first", sampled(range(0, 200, 50), 4))
def test_tensorflow_computes_random_programs_that_are_lowered(first: int) -> None:
    for seed, program in random_programs(range(first, first + 50)):
        cfgraph.lower(program.graph)
        with tf.Session(graph=imported(message_of(program.graph)), config=plainly()) as session:
            session.run("init")
            values, _ = session.run([program.fetches, program.targets], program.feeds)
            assert [int(value) for value in values] == program.expected, seed
            assert session.run("memory:0") == program.memory, seed


def marked(message: Any) -> Any:
    """A graph that TensorFlow lowers completely."""
    bodies = [node for function in message.library.function for node in function.node_def]
    for node in [*message.node, *bodies]:
        node.device = ""
        if node.op in MARKED:
            node.attr["_lower_using_switch_merge"].b = True
        for key in COMPILED:
            if key in node.attr:
                del node.attr[key]
    return message


def plainly() -> Any:
    """Options with which TensorFlow does not optimize a lowered graph."""
    config = tf.ConfigProto(allow_soft_placement=True)
    options = config.graph_options
    options.rewrite_options.disable_meta_optimizer = True
    options.optimizer_options.opt_level = tf.OptimizerOptions.L0
    options.optimizer_options.do_function_inlining = True
    return config


def ops_of_tensorflow(case: dict[str, Any], graph: Graph) -> Counter[str]:
    """The ops that TensorFlow runs for the last run of a case, once it has lowered the graph."""
    metadata = tf.RunMetadata()
    options = tf.RunOptions(output_partition_graphs=True)
    message = marked(message_of(graph))
    with tf.Session(graph=imported(message), config=plainly()) as session:
        for run in case["runs"]:
            try:
                session.run(run["fetches"], feeds_of(run), options=options, run_metadata=metadata)
            except tf.errors.OpError:
                assert run.get("error") or run is not case["runs"][-1]
    return Counter(node.op for part in metadata.partition_graphs for node in part.node)


def ops_of_cfgraph(case: dict[str, Any], graph: Graph) -> Counter[str]:
    """The ops of the lowered graph that the last run of a case needs."""
    run = case["runs"][-1]
    wanted = [graph[name.partition(":")[0]] for name in run["fetches"]]
    fed = [graph.tensor(name) for name in run["feeds"]]
    nodes = ancestors(lowered(graph), wanted, fed)
    return Counter(node.op for node in nodes if node not in {item.node for item in fed})


def counted(ops: Counter[str]) -> int:
    return sum(count for op, count in ops.items() if op not in NOT_COUNTED | REMOVED)


@pytest.mark.parametrize("case", CASES)
def test_tensorflow_lowers_into_no_fewer_nodes(case: dict[str, Any]) -> None:
    graph = last_graph(case)
    tensorflow_ops = ops_of_tensorflow(case, graph)
    if any(op in graph.functions or op in ("For", "SymbolicGradient") for op in tensorflow_ops):
        pytest.skip("TensorFlow lowers neither a For nor a SymbolicGradient, nor what is in them")
    cfgraph_ops = ops_of_cfgraph(case, graph)
    # -rP shows the table
    print(f"{counted(cfgraph_ops):5} of {counted(tensorflow_ops):5} nodes  {case['id']}")
    assert tensorflow_ops
    assert counted(cfgraph_ops) <= counted(tensorflow_ops)
