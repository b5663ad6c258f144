"""Rules for the function library: functions exist, are called as declared, and resolve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.verify.body_graph import BodyGraph
from cfgraph.analysis.verify.context import (
    NodeTypes,
    Signatures,
    TypeRow,
    VerifyContext,
    signature_types,
)
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import Func
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node
from cfgraph.ops.opdef.facts import FunctionCalls
from cfgraph.ops.opdef.op import function_calls

_SHOWN = 8


def check_named_functions(subject: VerifyContext) -> Iterator[Finding]:
    """Every function that an attribute names is in the library or is an op."""
    signatures = subject.signatures
    for nodes in subject.functional_nodes.values():
        for node in nodes:
            for key, func in functions_in_attrs(node.attrs):
                if not key.startswith("_") and signatures.of(func.name) is None:
                    message = (
                        f"attribute {key!r} names a function that does not exist, {func.name!r}"
                    )
                    hint = subject.signatures.suggest(func.name, signatures.library)
                    yield Finding("CFG133", "error", message, node.name, hint)


def functions_in_attrs(attrs: Mapping[str, Any]) -> Iterator[tuple[str, Func]]:
    """The functions that attributes name, existing or not, with the attribute."""
    for key, value in attrs.items():
        for func in value if type(value) is tuple else (value,):
            if type(func) is Func:
                yield key, func


def check_calls(subject: VerifyContext) -> Iterator[Finding]:
    """Called functions accept and return the types that the calling node expects."""
    for op, nodes in subject.functional_nodes.items():
        calls = function_calls(op)
        if calls.kind in _CONTRACTS:
            for node in nodes:
                yield from _check_call(subject, node, calls)


def _check_call(subject: VerifyContext, node: Node, calls: FunctionCalls) -> Iterator[Finding]:
    reads, returns = subject.types[node]
    if reads is None or returns is None or len(reads) != len(node.inputs):
        return
    for key, func in functions_in_attrs({key: node.attrs.get(key) for key in calls.functions}):
        signature = subject.signatures.of(func.name)
        if signature is None:
            continue
        passed = tuple(reads)[calls.first_argument :]
        wanted = _CONTRACTS[calls.kind](key, passed, returns)
        have = signature_types(signature, func.attrs)
        for what, mine, types in (
            ("take", have.inputs, wanted.inputs),
            ("return", have.outputs, wanted.outputs),
        ):
            if mine is not None and types is not None and not _are_compatible(mine, types):
                message = (
                    f"function {func.name!r} ({key}) {what}s {_format_types(mine)}, "
                    f"{node.op} expects it to {what} {_format_types(types)}"
                )
                yield Finding("CFG132", "error", message, node.name)


def _unchanged_contract(key: str, passed: TypeRow, returns: TypeRow) -> NodeTypes:
    return NodeTypes(passed, returns)


def _while_contract(key: str, passed: TypeRow, returns: TypeRow) -> NodeTypes:
    return NodeTypes(passed, (None,) if key == "cond" else returns)


def _for_contract(key: str, passed: TypeRow, returns: TypeRow) -> NodeTypes:
    return NodeTypes((dtypes.int32, *passed), returns)


def _gradient_contract(key: str, passed: TypeRow, returns: TypeRow) -> NodeTypes:
    """The node reads the arguments and the gradients of the outputs."""
    count = len(returns)
    return NodeTypes(tuple(passed)[:count], tuple(passed)[count:])


_CONTRACTS: Final = {
    "if": _unchanged_contract,
    "case": _unchanged_contract,
    "call": _unchanged_contract,
    "launch": _unchanged_contract,
    "while": _while_contract,
    "for": _for_contract,
    "gradient": _gradient_contract,
}


def _are_compatible(actual: TypeRow, expected: TypeRow) -> bool:
    return len(actual) == len(expected) and all(
        a is None or b is None or a.base is b.base for a, b in zip(actual, expected, strict=True)
    )


def _format_types(row: Sequence[DType | None]) -> str:
    if not row:
        return "nothing"
    names = ["any type" if dtype is None else str(dtype) for dtype in islice(row, _SHOWN)]
    more = f", … ({len(row)} in all)" if len(row) > _SHOWN else ""
    return f"({', '.join(names)}{more})"


def check_returned_types(body: BodyGraph) -> Iterator[Finding]:
    """Returned tensors have the declared types."""
    subject = body.subject
    signature = subject.signatures.of(subject.function)
    if signature is None:
        return
    for arg in signature.outputs:
        tensor = body.returns.get(arg.name)
        if tensor is None or arg.dtype is None or arg.count:
            continue
        outputs = subject.types[tensor.node].outputs
        if outputs is None:
            continue
        if tensor.port >= len(outputs):
            message = (
                f"output {arg.name!r} of the function is output {tensor.port} of "
                f"{tensor.node.name!r}, which has {len(outputs)}"
            )
            yield Finding("CFG131", "error", message)
        elif (have := outputs[tensor.port]) is not None and have.base is not arg.dtype:
            message = f"output {arg.name!r} of the function is {have}, declared is {arg.dtype}"
            yield Finding("CFG301", "error", message)


def check_returned_frames(body: BodyGraph) -> Iterator[Finding]:
    """Returned tensors are outside of loops, in the frame of the call."""
    frames = body.subject.frames
    if frames.cycles or frames.faults:
        return
    for name, tensor in body.returns.items():
        frame = frames.of_outputs.get(tensor.node)
        if frame is not None and frame is not frames.root:
            message = f"output {name!r} of the function is in frame {frame.path!r}, expected none"
            hint = "return the loop's Exit"
            yield Finding("CFG201", "error", message, tensor.node.name, hint)


def check_gradient_functions(graph: Graph, signatures: Signatures) -> Iterator[Finding]:
    """Both functions of every gradient registration exist."""
    for name, gradient in graph.gradient_functions.items():
        for function in (name, gradient):
            if function not in graph.functions:
                message = f"the gradient {gradient!r} of {name!r}: no function {function!r}"
                hint = signatures.suggest(function, graph.functions)
                yield Finding("CFG136", "error", message, None, hint)


def check_recursion(graph: Graph) -> Iterator[Finding]:
    """Functions are not recursive, directly or through others."""
    callees = {name: tuple(dict.fromkeys(_callees(graph, name))) for name in graph.functions}
    for cycle in _components(callees):
        message = f"function {cycle[0]!r} calls itself"
        if len(cycle) > 1:
            message += f" through {', '.join(map(repr, cycle[1:_SHOWN]))}"
        hint = "a recursive call cannot be lowered and stays a call"
        yield Finding("CFG134", "note", message, cycle[0], hint, tuple(cycle[1:]))


def _callees(graph: Graph, name: str) -> Iterator[str]:
    for node in graph.functions[name].definition.nodes:
        if node.op in graph.functions:
            yield node.op
        for _, func in functions_in_attrs(node.attrs):
            if func.name in graph.functions:
                yield func.name


def _components(callees: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Strongly connected components of the call graph, in library order."""
    if not any(callees.values()):
        return []
    import rustworkx

    names = list(callees)
    places = {name: index for index, name in enumerate(names)}
    calls = rustworkx.PyDiGraph()
    calls.add_nodes_from(names)
    calls.add_edges_from_no_data(
        [(places[name], places[callee]) for name in names for callee in callees[name]]
    )
    groups = [sorted(group) for group in rustworkx.strongly_connected_components(calls)]
    return [
        [names[index] for index in group]
        for group in sorted(groups)
        if len(group) > 1 or names[group[0]] in callees[names[group[0]]]
    ]
