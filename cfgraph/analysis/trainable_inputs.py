"""Default tensors to differentiate with respect to: variables and float inputs."""

from __future__ import annotations

from cfgraph.analysis.feeds_and_fetches import is_input
from cfgraph.analysis.resource_handles import variable_of_handle
from cfgraph.ir.functions import BodyNode
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ops.families.resource_variables import VarHandleOp
from cfgraph.ops.families.variables import VariableV2
from cfgraph.ops.opdef.op import is_a


def default_xs(graph: Graph) -> list[Output]:
    """The variables (their handles or references) and inputs of real or complex floats, in order.

    Handles of such variables that come from outside are among them.
    Whether a program trains a variable is not in the file, so all of them are there.
    """
    found = []
    for node in graph:
        dtype = node.attrs.get("dtype") if is_variable(node) else None
        if is_input(node):
            dtype = node.output().dtype
        if dtype is not None and dtype.kind == "resource":
            dtype, _ = variable_of_handle(graph, node.output())
        if dtype is not None and (dtype.is_floating or dtype.is_complex):
            found.append(node.output())
    return found


def is_variable(node: Node | BodyNode) -> bool:
    """True for a node that gives a variable: a reference to it, or its handle."""
    return is_a(node, VariableV2, VarHandleOp)


def is_same_variable(one: Node, other: Node) -> bool:
    """True for two nodes that give the same variable."""
    if not (is_variable(one) and is_variable(other)):
        return False
    return variable_key(one) == variable_key(other)


def variable_key(node: Node) -> tuple[str, str]:
    """The container and the name under which a session keeps the variable that a node gives."""
    shared = node.attr("shared_name").decode()
    if is_a(node, VariableV2):
        shared = shared or node.name
    return node.attr("container").decode(), shared
