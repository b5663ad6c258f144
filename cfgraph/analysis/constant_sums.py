"""Tensors whose elements have a constant sum, so that the gradient of the sum is zero.

Softmax(x)      x / Sum(x)      both also behind a Reshape, a Transpose, or an Identity
"""

from __future__ import annotations

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.families.division import RealDiv
from cfgraph.ops.families.permutation import Transpose
from cfgraph.ops.families.reduction import Sum
from cfgraph.ops.families.reshape import ExpandDims, Reshape, Squeeze
from cfgraph.ops.families.softmax import Softmax
from cfgraph.ops.opdef.op import is_a, strip_identities

_REARRANGING = (Reshape, Squeeze, ExpandDims, Transpose)


def normalizing_node(x: Output) -> Node | None:
    """The node that makes the elements of a tensor sum to a constant, or None."""
    x = strip_identities(x)
    while is_a(x.node, *_REARRANGING):
        x = strip_identities(x.node.inputs[0])
    return x.node if is_a(x.node, Softmax) or _is_share(x.node) else None


def _is_share(node: Node) -> bool:
    """True for a tensor divided by a sum of its elements."""
    if not is_a(node, RealDiv):
        return False
    shared, total = map(strip_identities, node.inputs)
    return is_a(total.node, Sum) and strip_identities(total.node.inputs[0]) == shared
