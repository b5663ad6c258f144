"""Nodes that a converter refuses, known without the converter, and the commands that mend it.

The ops that a converter accepts were measured (`support.toml`, by `benchmarks/converters/ops.py`);
control flow is judged by its form. An op that nothing measured is neither accepted nor refused, and
a node whose value is static is no obstacle, since converters fold constants first.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Annotated, Final, Literal

from cfgraph.errors import UsageError
from cfgraph.ir.function_graph import instantiate, is_polymorphic
from cfgraph.ir.functions import BodyNode
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import called_functions
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import downstream, reachable
from cfgraph.ops.families.constants import Const
from cfgraph.ops.opdef.op import function_calls, is_a, lookup
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.reports import Column, Record

FUNCTIONALIZE: Final = "functionalize"
FREEZE: Final = "freeze"
DYNAMIC_LIST: Final = "a list whose elements have no static shape"
LOOKUP_TABLE: Final = (
    "a lookup table, unless `freeze --constant-tables` makes its lookups constants"
)
_CONTROL_FLOW: Final = (
    *(Role.SWITCH, Role.MERGE, Role.ENTER, Role.EXIT),
    *(Role.NEXT_ITERATION, Role.LOOP_COND),
)
# of ops by the module that defines them
_ARRAYS: Final = frozenset({"stacks", "tensor_array_ops", "tensor_array_legacy"})
_VARIABLES: Final = frozenset({"variables", "resource_variables"})
_TABLES: Final = frozenset({"lookup_tables", "lookup_table_files", "dense_tables"})
# every converter drops or inlines these
_PLAIN: Final = frozenset(
    ["Const", "Placeholder", "PlaceholderWithDefault", "NoOp", "Identity", "IdentityN"]
)

Verdict = Literal["refused", "risky", "unknown"]
# what mends it comes last
Reason = tuple[Verdict, str, str | None]


class JudgedNode(Record):
    """A node that a converter refuses, may refuse, or of which nothing is known."""

    node: str  #: In a function with the name of the function before it.
    op: Annotated[str, Column(style="cyan")]
    verdict: Verdict
    reason: str
    mended_by: Annotated[str | None, "The pass that mends it."]


@dataclass(frozen=True, slots=True)
class Converter:
    """A converter of models by its target, and the ops that it accepts and refuses.

    `static_elements` are list ops that it accepts with a static shape of elements alone.
    """

    target: str
    name: str
    version: str
    converts: frozenset[str]
    refuses: frozenset[str]
    static_elements: frozenset[str]

    @property
    def has_all(self) -> bool:
        """True if it refuses every op that it does not accept."""
        return not self.refuses


CONVERTERS: Final = {"lite": "TensorFlow Lite, built-in ops", "onnx": "tf2onnx"}


@cache
def find_converter(name: str) -> Converter:
    """The converter to a format. Raises UsageError if there is none."""
    if name not in CONVERTERS:
        message = f"unknown converter {name!r}"
        raise UsageError(message, hint=f"--for is one of {', '.join(CONVERTERS)}")
    text = resources.files(__package__).joinpath("support.toml").read_text(encoding="utf-8")
    entry = tomllib.loads(text)[name]
    keys = ("converts", "refuses", "static_elements")
    lists = [frozenset(entry.get(key, "").split()) for key in keys]
    return Converter(name, CONVERTERS[name], entry["version"], *lists)


def judged_nodes(
    graph: Graph, outputs: Iterable[Node], converter: Converter, *, frozen: bool
) -> list[JudgedNode]:
    """The nodes that compute outputs, also in functions, and may not convert.

    The converter freezes the variables of a SavedModel itself; `frozen` graphs have none. It drops
    what control edges alone lead to, such as assertions.
    """
    judge = _Judge(graph, converter, frozen)
    nodes = _computing(graph, outputs)
    found = list(judge.all(nodes, infer_shapes(graph)))
    for name in sorted(called_functions(graph, nodes=nodes)):
        function = graph.functions[name]
        if is_polymorphic(function):
            found += judge.all(function.definition.nodes, None, f"{name}/")
            continue
        body = instantiate(function, {}, graph.functions)
        results = _computing(body.graph, (tensor.node for tensor in body.returns))
        found += judge.all(results, infer_shapes(body.graph), f"{name}/")
    order = ("refused", "risky", "unknown")
    return sorted(found, key=lambda item: order.index(item.verdict))


def _computing(graph: Graph, outputs: Iterable[Node]) -> list[Node]:
    """The nodes from which data edges lead to these, in graph order, except for constants."""
    needed = reachable(outputs, lambda node: [tensor.node for tensor in node.inputs])
    sources = [node for node in graph if not node.inputs and not is_a(node, Const)]
    varying = downstream([*sources, *(node for node in graph if _may_vary(node))])
    return [node for node in graph if node in needed and node in varying]


def _may_vary(node: Node) -> bool:
    """True for effects, control flow, and lists, which are no constants."""
    op, dtype = lookup(node.op), node.output().dtype
    is_list = dtype is not None and dtype.kind in ("variant", "resource")
    return op is None or is_list or op.effects.stateful or op.role is not None


@dataclass(frozen=True, slots=True)
class _Judge:
    graph: Graph
    converter: Converter
    frozen: bool

    def all(
        self, nodes: Iterable[Node | BodyNode], shapes: StaticShapes | None, prefix: str = ""
    ) -> Iterator[JudgedNode]:
        """The judged nodes of a graph or a body; `shapes` has its static values."""
        for node in nodes:
            found = self.judge(node)
            if shapes is not None and isinstance(node, Node):
                found = self.judge_values(node, shapes, found)
            if found is not None:
                yield JudgedNode(prefix + node.name, node.op, *found)

    def judge_values(self, node: Node, shapes: StaticShapes, found: Reason | None) -> Reason | None:
        """The reason under static values: they convert, lists of unknown shapes do not."""
        outputs = node.outputs
        if found and outputs and all(shapes.value(x) is not None for x in outputs):
            return None
        if found or node.op not in self.converter.static_elements:
            return found
        value = shapes.value(node.inputs[0])
        if value is not None and value.ndim == 1 and (value >= 0).all():
            return None
        return "refused", DYNAMIC_LIST, None

    def judge(self, node: Node | BodyNode) -> Reason | None:
        """Why a node may not convert, and what mends it; None if it converts."""
        op, role = node.op, ROLES[node.op]
        if op in self.graph.functions or op in _PLAIN or role in (Role.ARG, Role.RETVAL):
            return None
        if role in _CONTROL_FLOW:
            return self.judge_control_flow(node)
        calls, definition = function_calls(op), lookup(op)
        if calls.kind == "case" and len(calls.named_in(node.attrs)) > 1:
            return "refused", "no converter has a Case", FUNCTIONALIZE
        if self.converter.static_elements and node.attrs.get("resize_if_index_out_of_bounds"):
            return "refused", "a list that grows", None
        if calls.kind or op in self.converter.converts:
            return None
        family = definition.__module__.rpartition(".")[2] if definition else ""
        if family in _ARRAYS:
            is_risky = self.converter.has_all and family != "stacks"
            text = "recognized in the usual loops only" if is_risky else "an array outside of lists"
            return ("risky" if is_risky else "refused"), text, FUNCTIONALIZE
        if family in _VARIABLES:
            return None if self.frozen else ("refused", "a variable in a graph file", FREEZE)
        is_refused = op in self.converter.refuses or (self.converter.has_all and definition)
        if family in _TABLES:
            return "refused" if is_refused else "unknown", LOOKUP_TABLE, None
        if is_refused:
            return "refused", "the converter has no such op", None
        if definition is None:
            return "refused", "an op that is not TensorFlow's", None
        return "unknown", "nothing is known of this op", None

    def judge_control_flow(self, node: Node | BodyNode) -> Reason:
        """Why control flow of TensorFlow 1 may not convert."""
        if "num_outs" in node.attrs:
            return "refused", "a Switch of more than two outputs", FUNCTIONALIZE
        if ROLES[node.op] is Role.MERGE and node.attrs.get("N", 2) > 2:
            return "refused", f"a Merge of {node.attrs['N']} inputs", FUNCTIONALIZE
        return "risky", "recognized in the usual conditionals and loops only", FUNCTIONALIZE
