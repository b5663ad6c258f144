"""Replace fused ops by the ops that they stand for.

    y = _FusedMatMul(a, b, bias)          y/MatMul = MatMul(a, b)
          fused_ops=[BiasAdd, Relu]  ->   y/BiasAdd = BiasAdd(y/MatMul, bias)
                                          y = Relu(y/BiasAdd)

The last op of the chain takes the name of the fused one, so that fetches still work.
"""

from __future__ import annotations

from typing import Any

from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ops.families.fused import FusedOp
from cfgraph.ops.opdef.op import OpError, lookup


def unfuse_nodes(graph: Graph) -> tuple[dict[Node, list[Node]], dict[str, tuple[str, ...]]]:
    """Replace the fused ops of a graph, in place; those in functions stay.

    Returns the nodes added before each node, and the new names as in a Report. Raises Unsupported
    for a fused op that describes no chain.
    """
    names: dict[str, tuple[str, ...]] = {}
    fused = [node for node in graph if _fused_op(node) is not None]
    return {node: _unfuse_node(graph, node, names) for node in fused}, names


def _fused_op(node: Node) -> type[FusedOp] | None:
    op = lookup(node.op)
    return op if op is not None and issubclass(op, FusedOp) else None


def _unfuse_node(graph: Graph, node: Node, names: dict[str, tuple[str, ...]]) -> list[Node]:
    """Replace one node; the nodes added before it."""
    op = _fused_op(node)
    assert op is not None
    added: list[Node] = []

    def add(kind: str, *inputs: Output, **attrs: Any) -> Node:
        name = graph.unique_name(f"{node.name}/{kind}")
        made = graph.add(
            kind, *inputs, name=name, device=node.device, controls=node.controls, attrs=attrs
        )
        made.origin = node.origin
        added.append(made)
        return made

    try:
        outputs = list(op.unfused(add, node, node.inputs))
    except OpError as error:
        raise Unsupported(error.message, node=node, code="CFG705") from error
    for port, output in enumerate(outputs[1:], 1):
        graph.replace_uses(node.output(port), output)
        names[f"{node.name}:{port}"] = (output.name,)
    last = outputs[0].node
    if last not in added or outputs[0].port or last in {x.node for x in outputs[1:]}:
        last = add("Identity", outputs[0])
    added.remove(last)
    kept = {key: value for key, value in node.attrs.items() if key.startswith("_")}
    inputs, attrs = list(last.inputs), {**dict(last.attrs), **kept}
    graph.remove(last)
    graph.set_inputs(node, inputs)
    graph.set_op(node, last.op, attrs)
    names[node.name] = (*(made.name for made in added), node.name)
    return added
