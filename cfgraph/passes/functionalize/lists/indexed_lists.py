"""Lists with indices in place of push and pop, which converters of models do not have.

    f: PushBack(list, x)      becomes      f: SetItem(list, p, x), p + 1
    g: PopBack(list)          becomes      g: GetItem(list, q), q - 1, from q = p - 1

The list is empty at first, with a static maximum of elements. One loop pushes once in every
iteration, and one pops, as in a gradient; nothing else reads the list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import numpy as np

from cfgraph.ir.attrs import Func, TensorValue
from cfgraph.ir.dtypes import int32
from cfgraph.ir.functions import BodyNode, Function, FunctionDefinition
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import unused_name
from cfgraph.ir.shapes import Shape
from cfgraph.ir.signature import ArgDef
from cfgraph.ops.families.tensor_list_ops import (
    EmptyTensorList,
    TensorListPopBack,
    TensorListPushBack,
)
from cfgraph.ops.opdef.op import function_calls, is_a, lookup
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes

_POSITION: Final = "position"
_SHAPES_ATTR: Final = "output_shapes"


@dataclass(frozen=True, slots=True)
class PoppedList:
    """A list that one loop fills, and another empties; slots are those of the loops."""

    source: Node
    pushing: Output
    popping: Output


def index_lists(graph: Graph, fixed: Collection[Node]) -> int:
    """Replace push and pop of lists of a graph by indices; returns the number of lists.

    Values of `fixed` nodes may be results.
    """
    if not any(is_a(node, EmptyTensorList) for node in graph):
        return 0
    found = list(_popped_lists(graph, infer_shapes(graph), fixed))
    for item in found:
        _replace(graph, item)
    return len(found)


def _popped_lists(
    graph: Graph, shapes: StaticShapes, fixed: Collection[Node]
) -> Iterator[PoppedList]:
    for node in graph:
        if not is_a(node, EmptyTensorList):
            continue
        most = shapes.value(node.inputs[1])
        pushing = _reading_loop(node.output(), fixed)
        if most is None or most < 0 or pushing is None:
            continue
        popping = _reading_loop(pushing, fixed)
        if popping is None or _readers(popping):
            continue
        if _operation(graph, pushing, _is_push) and _operation(graph, popping, _is_pop):
            yield PoppedList(node, pushing, popping)


def _readers(tensor: Output) -> list[tuple[Node, int]]:
    return [(use.node, use.slot) for use in tensor.node.readers(tensor.port)]


def _reading_loop(tensor: Output, fixed: Collection[Node]) -> Output | None:
    """The output for the variable of a loop that alone reads a list."""
    readers = _readers(tensor)
    if len(readers) != 1:
        return None
    ((node, slot),) = readers
    op = lookup(node.op)
    if tensor.node in fixed or node in fixed:
        return None
    if op is not None and op.aliasing.is_identity:
        return _reading_loop(node.output(), fixed)
    return node.output(slot) if function_calls(node.op).kind == "while" else None


def _is_push(node: BodyNode) -> bool:
    return is_a(node, TensorListPushBack)


def _is_pop(node: BodyNode) -> bool:
    return is_a(node, TensorListPopBack)


def _operation(
    graph: Graph, variable: Output, is_wanted: Callable[[BodyNode], bool]
) -> BodyNode | None:
    """The node of the body that alone reads a list and returns it; None if there is no such."""
    bodies = {key: graph.functions.get(variable.node.attr(key).name) for key in ("cond", "body")}
    if bodies["cond"] is None or bodies["body"] is None:
        return None
    condition, body = bodies["cond"].definition, bodies["body"].definition
    argument, port = body.inputs[variable.port].name, variable.port
    nodes = [node for node in body.nodes if argument in _names(node)]
    if any(condition.inputs[port].name in _names(node) for node in condition.nodes):
        return None
    if len(nodes) != 1 or not is_wanted(nodes[0]) or _names(nodes[0]).count(argument) != 1:
        return None
    handle = f"{nodes[0].name}:output_handle:0"
    texts = [*chain.from_iterable(node.inputs for node in body.nodes), *body.returns.values()]
    is_returned = body.returns[body.outputs[port].name] == handle
    is_single = texts.count(handle) == 1 and argument not in body.returns.values()
    return nodes[0] if is_returned and is_single else None


def _names(node: BodyNode) -> list[str]:
    return [text.partition(":")[0] for text in node.inputs]


def _replace(graph: Graph, item: PoppedList) -> None:
    source, pushing, popping = item.source, item.pushing.node, item.popping.node
    attrs = {"element_dtype": source.attr("element_dtype"), "shape_type": source.attr("shape_type")}
    graph.set_op(source, "TensorListReserve", attrs)
    first = _constant(graph, f"{pushing.name}/{_POSITION}", 0)
    end = _add_position(graph, item.pushing, first, 1)
    one = _constant(graph, f"{popping.name}/{_POSITION}/one", 1)
    last = graph.add("Sub", end, one, name=f"{popping.name}/{_POSITION}").output()
    _add_position(graph, item.popping, last, -1)


def _constant(graph: Graph, name: str, value: int) -> Output:
    return graph.add("Const", name=name, dtype=int32, value=_scalar(value)).output()


def _scalar(value: int) -> TensorValue:
    return TensorValue(np.array(value, np.int32))


def _add_position(graph: Graph, variable: Output, start: Output, step: int) -> Output:
    """Add the index of the list as a last variable; returns its value after the loop."""
    loop, functions = variable.node, graph.functions
    attrs = {**loop.attrs, "T": (*loop.attr("T"), int32)}
    if attrs.get(_SHAPES_ATTR):
        attrs[_SHAPES_ATTR] = (*attrs[_SHAPES_ATTR], Shape(()))
    for key in ("cond", "body"):
        definition = functions[attrs[key].name].definition
        name = unused_name(attrs[key].name, functions)
        argument = ArgDef(unused_name(_POSITION, _used(definition)), int32, None)
        changed = replace(definition, inputs=(*definition.inputs, argument))
        if key == "body":
            changed = _with_index(changed, variable.port, step)
        functions[name] = Function(name, changed)
        attrs[key] = Func(name, attrs[key].attrs)
    port = len(loop.inputs)
    graph.connect(loop, [*loop.inputs, start], loop.controls)
    graph.set_op(loop, loop.op, attrs)
    return loop.output(port)


def _used(definition: FunctionDefinition) -> set[str]:
    arguments = {arg.name for arg in (*definition.inputs, *definition.outputs)}
    return arguments | {node.name for node in definition.nodes}


def _with_index(body: FunctionDefinition, port: int, step: int) -> FunctionDefinition:
    """The body with an operation at the index, its last argument, which it changes by a step."""
    argument, index = body.inputs[port].name, body.inputs[-1].name
    used = _used(body)
    amount, total, output = (unused_name(f"{index}_{end}", used) for end in ("step", "next", "out"))
    (user,) = (node for node in body.nodes if argument in _names(node))
    op, inputs, texts = "TensorListSetItem", (user.inputs[0], index, user.inputs[1]), {}
    if step < 0:
        op = "TensorListGetItem"
        texts = {f"{user.name}:tensor:0": f"{user.name}:item:0"}
        texts[f"{user.name}:output_handle:0"] = argument
    operation = replace(
        user, op=op, inputs=inputs, attrs={"element_dtype": user.attrs["element_dtype"]}
    )
    nodes = [
        BodyNode(amount, "Const", attrs={"dtype": int32, "value": _scalar(step)}),
        BodyNode(total, "AddV2", (index, f"{amount}:output:0"), attrs={"T": int32}),
    ]
    for node in body.nodes:
        changed = operation if node is user else node
        read = tuple(texts.get(text, text) for text in changed.inputs)
        nodes.append(replace(changed, inputs=read, origin=None))
    returns = {name: texts.get(text, text) for name, text in body.returns.items()}
    return replace(
        body,
        outputs=(*body.outputs, ArgDef(output, int32, None)),
        nodes=tuple(nodes),
        returns={**returns, output: f"{total}:z:0"},
    )
