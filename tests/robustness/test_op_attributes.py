"""Every op under attributes of any value: a plan is made, or an error names the node."""

import random
import warnings
from typing import Any

import pytest

import cfgraph
from cfgraph.analysis.check import check
from cfgraph.errors import CfgraphError, UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph
from cfgraph.ir.shapes import Shape
from cfgraph.ir.signature import AttrDef
from cfgraph.ops.index import FAMILIES
from cfgraph.ops.opdef.op import Op, lookup
from cfgraph.runtime.engine.plan import RunSpec, make_plans
from tests.sampled import sampled

OPS = [name for names in FAMILIES.values() for name in names.split()]
GROUPS = 8
NODES_PER_OP = 12
MAX_INPUTS = 50
# seconds for one node, whose attributes may request any amount of work
TIMEOUT = 2.0
VALUES: dict[str, tuple[Any, ...]] = {
    "int": (0, 1, 2, -1, -7, 3, 2**31 - 1, 2**40, -(2**63), 2**63 - 1),
    "float": (0.0, -1.5, float("nan"), float("inf"), 1e38),
    "bool": (True, False),
    "string": (b"", b"x", b"\xff", b"NHWC", b"((", b"%", b"a,b->c", b"SAME", b"{}{}"),
    "type": tuple(
        map(DType.from_name, ("float32", "int32", "bool", "string", "resource", "variant"))
    ),
    "shape": (Shape(None), Shape([]), Shape([2]), Shape([None]), Shape([2**62] * 2), Shape([0])),
}


def value(rng: random.Random, attr: AttrDef) -> Any:
    """A value of the kind that an attribute declares, or None: verification rejects any other."""
    kind = attr.kind.removeprefix("list(").removesuffix(")")
    choices = attr.allowed if attr.allowed and rng.random() < 0.9 else VALUES.get(kind)
    if choices is None:
        return None
    if attr.kind.startswith("list("):
        return tuple(rng.choice(choices) for _ in range(rng.choice((0, 1, 1, 2, 3, 4, 8))))
    chosen = rng.choice(choices)
    return max(chosen, attr.minimum or 0) if attr.minimum and rng.random() < 0.7 else chosen


def graph_of(rng: random.Random, op: type[Op]) -> Graph | None:
    """A node with random attributes and fed inputs, or None for attributes that fix no inputs."""
    signature = op.parsed()
    attrs = {name: value(rng, attr) for name, attr in signature.attrs.items()}
    for name, attr in signature.attrs.items():
        if attrs[name] is None or (attr.has_default and rng.random() < 0.3):
            del attrs[name]
    graph = Graph()
    try:
        types = signature.input_types(attrs)[:MAX_INPUTS]
        inputs = [
            graph.add("VariableV2", dtype=dtype.base, shape=Shape([2]))
            if dtype.is_ref
            else graph.add("Placeholder", dtype=dtype, shape=Shape(None))
            for dtype in types
        ]
        graph.create("n", op.name, [node.output() for node in inputs], (), attrs)
    except (ValueError, CfgraphError):
        return None
    return graph


def planning_error(graph: Graph) -> CfgraphError | None:
    """The error of making a plan under limits, or None."""
    with warnings.catch_warnings(), cfgraph.limited(timeout=TIMEOUT, max_memory=64 << 20):
        warnings.simplefilter("ignore")
        try:
            plan(graph)
        except UsageError:
            return None  # a missing feed
        except CfgraphError as error:
            return error
    return None


def plan(graph: Graph) -> None:
    """Make the plan of a run of the node `n`, unless the graph has errors."""
    feeds = tuple(node.output() for node in graph if node.name != "n")
    if not check(graph).count("error"):
        make_plans(RunSpec(graph, (), (graph["n"],), feeds), "cpu:0", None)  # type: ignore[arg-type]


@pytest.mark.parametrize("group", sampled(range(GROUPS), 2))
def test_attributes_of_any_value_make_no_internal_error(group: int) -> None:
    planned = 0
    for name in OPS[group::GROUPS]:
        op = lookup(name)
        assert op is not None
        rng = random.Random(name)
        for _ in range(NODES_PER_OP):
            graph = graph_of(rng, op)
            if graph is None:
                continue
            error = planning_error(graph)
            assert error is None or error.node == "n", (name, graph["n"].attrs, error)
            planned += error is None
    assert planned > 5 * len(OPS) // GROUPS


def test_rejected_attributes_are_an_error_of_the_run() -> None:
    cases = (
        ("Stack", {"elem_type": dtypes.float32, "stack_name": b"\xff"}, ""),
        ("StringFormat", {"T": (), "placeholder": b""}, "attribute 'placeholder' is empty"),
        ("TemporaryVariable", {"dtype": dtypes.float32, "shape": Shape(None)}, "a known shape"),
    )
    for op, attrs, message in cases:
        graph = Graph()
        graph.create("n", op, (), (), attrs)
        if not message:
            plan(graph)
            continue
        with pytest.raises(cfgraph.ExecutionError, match=message) as raised:
            plan(graph)
        assert (raised.value.node, raised.value.code) == ("n", "CFG705")
