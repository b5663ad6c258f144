"""Planted miscompilations: a recorded graph, and the same graph with one fault."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

import cfgraph
from cfgraph.comparison.equivalence import ComparisonRunOptions
from cfgraph.comparison.sample_point import SampleOptions
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import copy_graph
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import is_transfer
from cfgraph.ops.opdef.op import role_of

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
ARCHIVE: Final = FIXTURES / "conformance" / "tensorflow.zip"
CONTROL_FLOW: Final = "control_flow_ops_py_test_v1/ControlFlowTest."
SQUARE: Final = f"{CONTROL_FLOW}testWhileGrad_Square/0"
NESTED: Final = f"{CONTROL_FLOW}testNestedWhileGrad_ParallelInner/0"
SHAPES: Final = f"{CONTROL_FLOW}testWhile_5/0"
MANY: Final = f"{CONTROL_FLOW}testWhile_NestedInput/0"
DEPENDENT: Final = f"{CONTROL_FLOW}testWithTensorDependencies/0"
FOLD: Final = "functional_ops_test_v1/FunctionalOpsTest.testScanFoldl_Nested/0"
FOR: Final = "functional_ops_test_v1/FunctionalOpsTest.testForWithWhile/0"
MAP: Final = "map_fn_test_v1/MapFnTest.testMap_SimpleNotTensor/0"

Mutation = Callable[[Graph], None]


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """A fault: the graph, as a file of fixtures/graphs or a recorded case, and its mutation."""

    name: str
    graph: str
    mutate: Mutation
    feeds: tuple[tuple[str, Any], ...] = ()
    fetches: tuple[str, ...] = ()
    prepare: Mutation | None = None

    def graphs(self) -> tuple[Graph, Graph]:
        """Return the right graph and the wrong one."""
        right = load(self.graph)
        if self.prepare is not None:
            self.prepare(right)
        wrong = copy_graph(right)
        self.mutate(wrong)
        return right, wrong

    def options(self) -> ComparisonRunOptions:
        """Return the options of the comparison."""
        fetches = self.fetches or recorded_fetches(self.graph)
        return ComparisonRunOptions(SampleOptions(dict(self.feeds), max_iterations=1000), fetches)


def load(name: str) -> Graph:
    """Return a graph of fixtures/graphs, or the last one of a recorded case."""
    if name.endswith(".pb"):
        return cfgraph.load(FIXTURES / "graphs" / name)
    with zipfile.ZipFile(ARCHIVE) as archive:
        return cfgraph.loads(archive.read(f"graphs/{recorded(name)['graph']}.pb"))


def recorded_fetches(name: str) -> tuple[str, ...]:
    """Return the fetches of a recorded case, none for a file."""
    if name.endswith(".pb"):
        return ()
    return tuple(fetch for fetch in recorded(name)["fetches"] if ":" in fetch)


@cache
def recorded(name: str) -> dict[str, Any]:
    """Return the last run of a recorded case."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        for line in archive.read("cases.jsonl").splitlines():
            case = json.loads(line)
            if case["id"] == name:
                run: dict[str, Any] = case["runs"][-1]
                return run
    raise KeyError(name)


def with_op(name: str, op: str, **attrs: Any) -> Mutation:
    """Return a mutation that replaces the op of a node."""

    def mutate(graph: Graph) -> None:
        node = graph[name]
        graph.set_op(node, op, {**node.attrs, **attrs})

    return mutate


def as_bitcast(name: str) -> Mutation:
    """Return a mutation of a Cast that reinterprets bits instead of values."""

    def mutate(graph: Graph) -> None:
        node = graph[name]
        attrs = {"T": node.attr("SrcT"), "type": node.attr("DstT")}
        graph.set_op(node, "Bitcast", attrs)

    return mutate


def with_attr(name: str, key: str, value: Any) -> Mutation:
    """Return a mutation of an attribute."""
    return lambda graph: graph.set_attr(graph[name], key, value)


def with_input(name: str, slot: int, tensor: str) -> Mutation:
    """Return a mutation of an input."""
    return lambda graph: graph.set_input(graph[name], slot, graph.tensor(tensor))


def with_constant(name: str, value: Any) -> Mutation:
    """Return a mutation of a constant."""

    def mutate(graph: Graph) -> None:
        dtype = graph[name].attr("dtype").numpy
        graph.set_attr(graph[name], "value", TensorValue(np.array(value, dtype)))

    return mutate


def with_swapped_inputs(name: str) -> Mutation:
    """Return a mutation that reverses the inputs of a node."""
    return lambda graph: graph.set_inputs(graph[name], graph[name].inputs[::-1])


def with_swapped_sides(name: str) -> Mutation:
    """Return a mutation that swaps the outputs of a Switch."""

    def mutate(graph: Graph) -> None:
        switch = graph[name]
        uses = [use for use in switch.uses if use.slot >= 0]
        for use in uses:
            port = use.node.inputs[use.slot].port
            graph.set_input(use.node, use.slot, switch.output(1 - port))

    return mutate


def with_swapped_branches(name: str) -> Mutation:
    """Return a mutation that swaps the functions of an If."""

    def mutate(graph: Graph) -> None:
        attrs = graph[name].attrs
        first, second = attrs["then_branch"], attrs["else_branch"]
        graph.set_attr(graph[name], "then_branch", second)
        graph.set_attr(graph[name], "else_branch", first)

    return mutate


def without_controls(name: str) -> Mutation:
    """Return a mutation that drops the control edges of a node."""
    return lambda graph: graph.set_controls(graph[name], ())


def on_two_devices(graph: Graph) -> None:
    """Partition a graph."""
    cfgraph.place(graph, devices=["cpu:0", "cpu:1"], seed=7)
    cfgraph.partition(graph)


def without_send(graph: Graph) -> None:
    """Drop the first Send."""
    graph.remove(next(_sends(graph)))


def _sends(graph: Graph) -> Iterator[Node]:
    return (n for n in graph if role_of(n) is Role.SEND and is_transfer(n))


_COUNTER: Final = (("n:0", 5),)
_LSTM: Final = (
    ("W:0", np.linspace(-0.01, 0.03, 512 * 1024, dtype=np.float32).reshape(512, 1024)),
    ("x:0", np.linspace(-1, 1, 2 * 32 * 256, dtype=np.float32).reshape(2, 32, 256)),
)
_SCALARS: Final = (("x:0", 3.0), ("y:0", 2.0), ("z:0", 5.0))
_GRADIENTS: Final = ("gradients/lstm/MatMul/Enter_grad/b_acc_3:0",)
_FORWARD: Final = ("loss:0",)

FAULTS: Final[tuple[PlantedFault, ...]] = (
    PlantedFault("wrong op in a loop", SHAPES, with_op("while/Add_1", "Sub")),
    PlantedFault("wrong op in an inner loop", NESTED, with_op("while/while_1/Mul", "AddV2")),
    PlantedFault(
        "wrong op in a gradient", SQUARE, with_op("gradients/while/Square_grad/Mul_1", "Maximum")
    ),
    PlantedFault(
        "dropped control edge",
        DEPENDENT,
        without_controls("c1_with_init_v"),
        (),
        ("c1_with_init_v:0",),
    ),
    PlantedFault(
        "dropped control edge of a stack",
        SQUARE,
        without_controls("gradients/while/Square_grad/Mul/StackPopV2"),
    ),
    PlantedFault(
        "swapped Switch outputs", SQUARE, with_swapped_sides("gradients/cond/Merge_grad/cond_grad")
    ),
    PlantedFault(
        "swapped outputs of a loop's Switch",
        SHAPES,
        with_input("while/Exit_2", 0, "while/Switch_1:0"),
    ),
    PlantedFault(
        "wrong Merge order", SQUARE, with_swapped_inputs("cond/Merge"), (), ("cond/Merge:1",)
    ),
    PlantedFault("lost Send", SHAPES, without_send, prepare=on_two_devices),
    PlantedFault("wrong constant", FOLD, with_constant("scan/TensorArrayReadV3/index", 1)),
    PlantedFault("wrong constant of an axis", SHAPES, with_constant("while/add/x", 2)),
    PlantedFault(
        "Enter that is not constant",
        "counter.pb",
        with_attr("while/Less/Enter", "is_constant", False),
        _COUNTER,
    ),
    PlantedFault(
        "Enter into another frame",
        NESTED,
        with_attr("while/while/Enter_1", "frame_name", b"elsewhere"),
    ),
    PlantedFault("wrong loop condition", NESTED, with_op("while/while/Less", "LessEqual")),
    PlantedFault("inverted loop condition", MAP, with_op("map/while/Less_1", "Greater")),
    PlantedFault("wrong cast", FOR, as_bitcast("Cast_1")),
    PlantedFault(
        "dropped NextIteration operand",
        MAP,
        with_input("map/while/NextIteration_2", 0, "map/while/Identity_2:0"),
    ),
    PlantedFault(
        "swapped operands", "lstm_grad.pb", with_swapped_inputs("gradients/Sub"), _LSTM, _GRADIENTS
    ),
    PlantedFault(
        "wrong gate",
        "lstm_grad.pb",
        with_input("lstm/Sigmoid_2", 0, "lstm/split:2"),
        _LSTM,
        _FORWARD,
    ),
    PlantedFault(
        "wrong transpose",
        "lstm_grad.pb",
        with_attr("gradients/lstm/MatMul_grad/MatMul", "transpose_b", False),
        _LSTM,
        _GRADIENTS,
    ),
    PlantedFault(
        "popped from another stack",
        "lstm_grad.pb",
        with_input("gradients/lstm/mul_grad/Mul_1", 1, "gradients/lstm/mul_grad/Mul/StackPopV2:0"),
        _LSTM,
        _GRADIENTS,
    ),
    PlantedFault(
        "wrong index of a TensorArray",
        FOLD,
        with_input("scan/while/TensorArrayReadV3", 1, "scan/while/add_1:0"),
    ),
    PlantedFault(
        "swapped branches of an If", "cond_functional.pb", with_swapped_branches("cond"), _SCALARS
    ),
    PlantedFault("wrong increment", NESTED, with_constant("while/while/Add/y", 2)),
)
