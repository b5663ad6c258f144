"""Nodes of called functions, by the names that they have in a run.

A run replaces a call by the nodes of its function, whose names begin with that of the call. Those
of a loop are in a scope `body` or `cond` of it, those of a conditional in the scope of a branch:

    call (f: x, loop (cond: c, body: b))   ->   call/x, call/loop/cond/c, call/loop/body/b
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from cfgraph.ir.attrs import functions_in
from cfgraph.ir.functions import BodyNode, Function, FunctionDefinition
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import select_implementation
from cfgraph.ir.traversal import reachable
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import function_calls

# scopes of the functions that a node names, by attribute; branches of a Case have numbers
_SCOPES: Final[Mapping[str, str]] = {
    "cond": "/cond",
    "body": "/body",
    "then_branch": "/then",
    "else_branch": "/else",
    "branches": "/branch{}",
    "f": "",
}
_KINDS: Final = ("call", "if", "case", "while", "for")
# calls may nest so that a small file has any number of inner nodes
_MAX_NODES: Final = 1_000_000


class InnerNode(NamedTuple):
    """A node of a function: its name in a run, its function, and the node of the body."""

    name: str
    function: str
    body: BodyNode

    @property
    def qualified_name(self) -> str:
        """The name of the node that is the same for all calls: FUNCTION/NODE."""
        return f"{self.function}/{self.body.name}"


def called_bodies(
    node: Node | BodyNode, functions: Mapping[str, Function]
) -> Iterator[tuple[str, Function]]:
    """The functions that a run replaces a node by, each with the scope of its nodes."""
    if node.op in functions:
        yield node.name, functions[select_implementation(functions, node.op, node.device)]
        return
    calls = function_calls(node.op)
    if calls.kind not in _KINDS:
        return
    for key in calls.functions:
        for index, func in enumerate(functions_in(node.attrs.get(key))):
            if func.name in functions:
                name = func.name
                if calls.kind == "call":
                    name = select_implementation(functions, name, node.device)
                yield f"{node.name}{_SCOPES[key].format(index)}", functions[name]


def inner_nodes(
    graph: Graph, nodes: Iterable[Node], *, needed: bool = False
) -> Iterator[InnerNode]:
    """The nodes of all functions that some nodes of a graph call; a recursive call has none.

    At most a million; those that a result or a control output needs, if only `needed` ones count.
    """
    if not graph.functions:
        return
    bodies: list[tuple[str, Function, tuple[str, ...]]] = [
        (scope, body, (body.name,)) for node in nodes for scope, body in _bodies(node, graph)
    ]
    count = 0
    while bodies and count < _MAX_NODES:
        check_deadline()
        scope, function, callers = bodies.pop()
        count += len(function.definition.nodes)
        results = _results_need(function.definition) if needed else None
        for node in function.definition.nodes:
            if results is not None and node.name not in results:
                continue
            yield InnerNode(f"{scope}/{node.name}", function.name, node)
            bodies += [
                (f"{scope}/{inner}", called, (*callers, called.name))
                for inner, called in _bodies(node, graph)
                if called.name not in callers
            ]


def _results_need(definition: FunctionDefinition) -> set[str]:
    roots = [*definition.returns.values(), *definition.control_returns.values()]
    return body_ancestors(definition, roots)


def _bodies(node: Node | BodyNode, graph: Graph) -> list[tuple[str, Function]]:
    return [*called_bodies(node, graph.functions)]


def body_ancestors(definition: FunctionDefinition, tensors: Iterable[str]) -> set[str]:
    """The arguments and nodes of a body that tensors depend on."""
    nodes = {node.name: node for node in definition.nodes}

    def names(texts: Iterable[str]) -> list[str]:
        return [text.lstrip("^").partition(":")[0] for text in texts]

    return set(
        reachable(names(tensors), lambda name: names(nodes[name].inputs) if name in nodes else ())
    )


def find_inner_node(graph: Graph, name: str) -> InnerNode | None:
    """The node that has a name in a run, or None."""
    todo: list[tuple[str, Mapping[str, Node | BodyNode]]] = [(name, graph.nodes)]
    while todo:
        rest, nodes = todo.pop()
        parts = rest.split("/")
        callers = ("/".join(parts[:count]) for count in range(1, len(parts)))
        for caller in (nodes[caller] for caller in callers if caller in nodes):
            for scope, function in called_bodies(caller, graph.functions):
                if not rest.startswith(f"{scope}/"):
                    continue
                inner = rest.removeprefix(f"{scope}/")
                body = {node.name: node for node in function.definition.nodes}
                if inner in body:
                    return InnerNode(name, function.name, body[inner])
                todo.append((inner, body))
    return None
