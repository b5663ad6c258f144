"""Operators on functions: those on graphs applied to bodies, and variables of functional loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cfgraph.comparison.reduce.removal import dead_ends
from cfgraph.comparison.reduce.search import Operator
from cfgraph.comparison.reduce.subject import Subject
from cfgraph.errors import CfgraphError
from cfgraph.ir.attrs import Func, TensorValue
from cfgraph.ir.function_graph import ARG_OP, instantiate, is_polymorphic
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import copy_graph, function_from_nodes
from cfgraph.limits import check_deadline

_RETURN_OP: Final = "_Retval"
_LISTS: Final = ("T", "output_shapes")
BodyEdit = Callable[[Graph], Graph | None]


@dataclass(frozen=True, slots=True)
class BodyOperator:
    """An operator applied to the body of each function."""

    inner: Operator

    @property
    def name(self) -> str:
        """The name of the operator on graphs."""
        return f"{self.inner.name} of functions"

    def items(self, subject: Subject) -> list[tuple[str, Any]]:
        """Return functions with the items of their bodies."""
        graph = subject.graphs[0]
        bodies = {name: _body_or_none(graph, name) for name in graph.functions}
        return [
            (name, item)
            for name, body in bodies.items()
            if body is not None
            for item in self.inner.items(Subject((body,)))
        ]

    def candidate(self, subject: Subject, items: Sequence[tuple[str, Any]]) -> Subject | None:
        """Return a subject with smaller bodies."""

        def edit(graph: Graph) -> Graph | None:
            copy = copy_graph(graph)
            for name in dict.fromkeys(name for name, _ in items):
                chosen = [item for function, item in items if function == name]
                if not _edit_body(copy, name, self._edit_of(chosen)):
                    return None
            return copy

        return subject.edited(edit)

    def _edit_of(self, items: Sequence[Any]) -> BodyEdit:
        def edit(body: Graph) -> Graph | None:
            new = self.inner.candidate(Subject((body,)), items)
            return new.graphs[0] if new is not None else None

        return edit


def _body(graph: Graph, function: Function) -> Graph:
    """Return a body as a graph, with a node per argument and per output."""
    instance = instantiate(function, {}, graph.functions)
    for index, tensor in enumerate(instance.returns):
        name = instance.graph.unique_name(f"return_{index}")
        attrs = {"T": instance.output_types[index], "index": index}
        instance.graph.create(name, _RETURN_OP, [tensor], (), attrs)
    return instance.graph


def _body_or_none(graph: Graph, name: str) -> Graph | None:
    """Return a body as a graph, None if there is none that depends on nothing else."""
    function = graph.functions.get(name)
    if function is None or is_polymorphic(function):
        return None
    try:
        return _body(graph, function)
    except CfgraphError:
        check_deadline()
        return None


def _edit_body(
    graph: Graph,
    name: str,
    edit: BodyEdit,
    dropped: tuple[int | None, int | None] = (None, None),
) -> bool:
    """Replace the body of a function, in place; false if that is not possible.

    `dropped` are the indices of an argument and of an output to remove.
    """
    instance = _body_or_none(graph, name)
    body = None if instance is None else edit(instance)
    if body is None or graph.functions[name].definition.control_outputs:
        return False
    definition = graph.functions[name].definition
    arguments: dict[int | None, Node] = {
        node.attr("index"): node for node in body if node.op == ARG_OP
    }
    returns = {node.attr("index"): node.inputs[0] for node in body if node.op == _RETURN_OP}
    kept = [index for index in range(len(definition.outputs)) if index != dropped[1]]
    if any(index not in returns for index in kept):
        return False
    inputs = {}
    for index, arg in enumerate(definition.inputs):
        if index == dropped[0]:
            continue
        if index not in arguments:
            new = body.unique_name(arg.name)
            attrs = {"T": arg.dtype, "index": index}
            arguments[index] = body.create(new, ARG_OP, (), (), attrs)
        inputs[arg.name] = arguments[index].output()
    for node in body:
        if node.op != ARG_OP and node.name in inputs:
            node.name = body.unique_name(node.name)
    graph.functions[name] = function_from_nodes(
        name,
        [n for n in body if n.op != _RETURN_OP and n is not arguments.get(dropped[0])],
        inputs,
        {definition.outputs[index].name: returns[index] for index in kept},
        library=graph.functions,
    )
    return True


@dataclass(frozen=True, slots=True)
class FunctionalVariableOperator:
    """Removal of variables of functional loops, which are constant then."""

    values: Mapping[str, Any]
    name: str = "variables of functional loops"

    def items(self, subject: Subject) -> list[tuple[str, str]]:
        """Return loops with the name of a variable in the body."""
        graph = subject.graphs[0]
        return [
            (node.name, name)
            for node in graph
            if _is_loop(node) and _can_be_edited(graph, node)
            for name in _variables(graph, node)
        ]

    def candidate(self, subject: Subject, items: Sequence[tuple[str, str]]) -> Subject | None:
        """Return a subject without some variables."""

        def edit(graph: Graph) -> Graph | None:
            copy = copy_graph(graph)
            for name, variable in items:
                loop = copy[name]
                names = _variables(copy, loop)
                if variable not in names or not self._drop(copy, loop, names.index(variable)):
                    return None
            return copy

        return subject.edited(edit)

    def _drop(self, graph: Graph, loop: Node, index: int) -> bool:
        if len(loop.inputs) == 1:
            return False
        value = self.values.get(loop.inputs[index].name)
        constant = None if value is None else np.asarray(value)

        def edit(body: Graph) -> Graph | None:
            argument = next(n for n in body if n.op == ARG_OP and n.attr("index") == index)
            if argument.uses and (constant is None or constant.dtype == object):
                return None
            if argument.uses:
                attrs = {"dtype": argument.attr("T"), "value": TensorValue(constant)}
                body.set_op(argument, "Const", attrs)
            return body

        def edit_body(body: Graph) -> Graph | None:
            returned = next(n for n in body if n.op == _RETURN_OP and n.attr("index") == index)
            unread = [node for node in dead_ends(body, [returned.name]) if node.op != ARG_OP]
            body.remove(*unread)
            return edit(body)

        if not _edit_body(graph, loop.attr("body").name, edit_body, (index, index)):
            return False
        if not _edit_body(graph, loop.attr("cond").name, edit, (index, None)):
            return False
        _drop_port(graph, loop, index)
        return True


def _is_loop(node: Node) -> bool:
    return all(isinstance(node.attrs.get(key), Func) for key in ("body", "cond"))


def _can_be_edited(graph: Graph, loop: Node) -> bool:
    return all(_body_or_none(graph, name) is not None for name in _functions(loop))


def _functions(loop: Node) -> tuple[str, str]:
    """Return the names of the body and of the condition."""
    return loop.attr("body").name, loop.attr("cond").name


def _variables(graph: Graph, loop: Node) -> list[str]:
    """Return the names of the arguments of the body, if both functions have one per input."""
    body, cond = (graph.functions.get(name) for name in _functions(loop))
    if body is None or cond is None:
        return []
    lists = (body.definition.inputs, body.definition.outputs, cond.definition.inputs)
    if any(len(items) != len(loop.inputs) for items in lists):
        return []
    return [arg.name for arg in body.definition.inputs]


def _drop_port(graph: Graph, loop: Node, index: int) -> None:
    """Remove an input of a loop and the output of the same number, in place."""
    attrs = {key: value for key, value in loop.attrs.items() if key not in _ANNOTATIONS}
    for key in _LISTS:
        if isinstance(attrs.get(key), tuple) and len(attrs[key]) == len(loop.inputs):
            attrs[key] = tuple(_without(attrs[key], index))
    initial, count = loop.inputs[index], loop.output_count or len(loop.inputs)
    inputs = list(_without(loop.inputs, index))
    new = graph.create(
        graph.unique_name("loop"), loop.op, inputs, loop.controls, attrs, loop.device
    )
    for port in range(count):
        source = initial if port == index else new.output(port - (port > index))
        graph.replace_uses(loop.output(port), source)
    for reader in loop.control_readers:
        graph.remove_control(reader, loop)
        graph.add_control(reader, new)
    order = [new if node is loop else node for node in graph if node is not new]
    name = loop.name
    graph.remove(loop)
    new.name = name
    graph.reorder(order)


_ANNOTATIONS: Final = ("_output_shapes", "_num_original_outputs", "_read_only_resource_inputs")


def _without(items: Sequence[Any], index: int) -> Iterator[Any]:
    return (item for number, item in enumerate(items) if number != index)
