"""Slices of tensors as options name them: `logits[:, 3]`."""

from __future__ import annotations

import ast
from typing import Any

from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ops.shape_inference import infer_node_shapes, infer_shapes
from cfgraph.ops.static_values import PartialArray

# late imports: few tensors are sliced


def named_tensor(graph: Graph, name: str, index: str) -> Output:
    """A tensor, or a slice of it, for which a node is added. Raises UsageError for no index."""
    tensor = graph.tensor(name)
    if not index:
        return tensor
    from cfgraph.build.builder import Builder

    sliced = Builder(graph).existing(tensor)[_parsed_index(name, index)]
    output: Output = sliced.output
    _require_fitting(graph, output.node, f"{name}{index}")
    graph.rename(output.node, graph.unique_name(f"{tensor.node.name}/slice"))
    return output


def _require_fitting(graph: Graph, node: Node, text: str) -> None:
    """Raise UsageError for an index that static shapes exclude."""
    shapes = infer_shapes(graph)
    arrays = [shapes.value(x) for x in node.inputs]
    values = [None if array is None else PartialArray(array) for array in arrays]
    try:
        infer_node_shapes(node, [shapes[x] for x in node.inputs], values)
    except ValueError as error:
        message = f"{text} does not fit the shape {shapes[node.inputs[0]]}: {error}"
        raise UsageError(message, node=node.inputs[0].node) from None


def _parsed_index(name: str, index: str) -> Any:
    """The index of a subscript: integers, slices of integers, and `...`."""
    try:
        parsed = ast.parse(f"x{index}", mode="eval").body
        if isinstance(parsed, ast.Subscript) and isinstance(parsed.value, ast.Name):
            return _value(parsed.slice)
    except (SyntaxError, ValueError, RecursionError):
        pass
    message = f"{name}{index} has no valid index"
    raise UsageError(message, hint="use integers, slices, and ...; such as logits[:, 3]")


def _value(item: ast.expr | None) -> Any:
    if isinstance(item, ast.Tuple):
        return tuple(map(_value, item.elts))
    if isinstance(item, ast.Slice):
        return slice(*map(_value, (item.lower, item.upper, item.step)))
    number = None if item is None else ast.literal_eval(item)
    if type(number) not in (int, type(None), type(...)):
        raise ValueError(number)
    return number
