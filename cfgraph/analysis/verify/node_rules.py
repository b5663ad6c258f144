"""Rules for single nodes: names, ops, and attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.verify.context import VerifyContext
from cfgraph.errors import InvalidInput
from cfgraph.ir import registry
from cfgraph.ir.attrs import AttrPlaceholder, Func, TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.names import NODE_NAME, misspelled_op_hint
from cfgraph.ir.shapes import Shape
from cfgraph.ir.signature import AttrDef, Signature
from cfgraph.ir.text.inferred_attrs import infer_node_attrs
from cfgraph.ir.text.printer import AttrPrinter

_PYTHON: Final[dict[str, type]] = {
    "string": bytes,
    "int": int,
    "float": float,
    "bool": bool,
    "type": DType,
    "shape": Shape,
    "tensor": TensorValue,
    "func": Func,
}
# values that are cheap to compare and equal only to their own type
_COMPARABLE: Final = frozenset((bytes, int, bool, DType))


def check_names(subject: VerifyContext) -> Iterator[Finding]:
    """Every node has a valid name and an op."""
    for node in subject.nodes:
        if not NODE_NAME(node.name):
            message = f"invalid node name {node.name!r}"
            hint = "use letters, digits, and _ . / > -, not starting with / > or -"
            yield Finding("CFG102", "error", message, node.name, hint)
        if not node.op:
            yield Finding("CFG103", "error", "the node has no op", node.name)
    yield from _check_internal_names(subject)


def _check_internal_names(subject: VerifyContext) -> Iterator[Finding]:
    nodes = [node for node in subject.nodes if node.name[:1] == "_"]
    if nodes and not subject.function:
        others = f" ({len(nodes)} nodes)" if len(nodes) > 1 else ""
        message = f"the name starts with an underscore{others}; TensorFlow does not import it"
        related = tuple(node.name for node in nodes[1:])
        yield Finding("CFG117", "note", message, nodes[0].name, None, related)


def check_ops(subject: VerifyContext) -> Iterator[Finding]:
    """Every op is known or a library function; one finding per unknown op."""
    known = [*registry.op_names(), *subject.signatures.library]
    for op, nodes in subject.by_op.items():
        if not op or subject.signatures.of(op) is not None:
            continue
        others = f" ({len(nodes)} nodes)" if len(nodes) > 1 else ""
        message = f"unknown op {op!r}{others}; it is preserved but cannot run"
        hint = subject.suggest(op, known, misspelled_op_hint)
        related = tuple(node.name for node in nodes[1:])
        yield Finding("CFG101", "warning", message, nodes[0].name, hint, related)


def check_attributes(subject: VerifyContext) -> Iterator[Finding]:
    """Every node has the declared attributes, with allowed values."""
    for op, nodes in subject.by_op.items():
        signature = subject.signatures.of(op)
        if signature is not None:
            yield from _check_attributes_of_op(subject, signature, nodes)


def _check_attributes_of_op(
    subject: VerifyContext, signature: Signature, nodes: list[Node]
) -> Iterator[Finding]:
    declared, in_function = signature.attrs, bool(subject.function)
    required = _required(signature)
    # values of the right kind without bounds are checked once
    free = {attr.name: _PYTHON.get(attr.kind) for attr in declared.values() if not _bounded(attr)}
    fine: set[tuple[str, type, Any]] = set()
    for node in nodes:
        attrs = node.attrs
        if not required.issubset(attrs):
            yield from _missing(node, declared, required)
        for key, value in attrs.items():
            kind = type(value)
            if free.get(key) is kind or key.startswith("_"):
                continue
            if kind in _COMPARABLE and (key, kind, value) in fine:
                continue
            finding = _check_attribute(subject, node, key, declared.get(key), in_function)
            if finding is not None:
                yield finding
            elif kind in _COMPARABLE:
                fine.add((key, kind, value))


def _bounded(attr: AttrDef) -> bool:
    return attr.minimum is not None or attr.allowed is not None


def _missing(
    node: Node, declared: Mapping[str, AttrDef], required: frozenset[str]
) -> Iterator[Finding]:
    clauses = infer_node_attrs(node)
    for key in sorted(required - node.attrs.keys()):
        message = f"{node.op} needs the attribute {key!r} ({declared[key].kind})"
        hint = AttrPrinter().attrs_text({key: clauses[key]}) if key in clauses else None
        hint = hint and f"its inputs imply {hint}"
        yield Finding("CFG110", "error", message, node.name, hint)


def _check_attribute(
    subject: VerifyContext, node: Node, key: str, attr: AttrDef | None, in_function: bool
) -> Finding | None:
    value = node.attrs[key]
    if attr is None:
        return _undeclared(subject, node, key)
    if in_function and isinstance(value, AttrPlaceholder):
        return None
    if not _fits(attr, value):
        return _wrong_kind(node, attr, value)
    return _out_of_bounds(node, attr, value)


def _required(signature: Signature) -> frozenset[str]:
    return frozenset(attr.name for attr in signature.attrs.values() if not attr.has_default)


def _fits(attr: AttrDef, value: Any) -> bool:
    """True for a value of the kind; unknown kinds accept any value."""
    if not attr.kind.startswith("list("):
        return type(value) is _PYTHON.get(attr.kind, type(value))
    expected = _PYTHON.get(attr.kind[5:-1])
    return type(value) is tuple and all(
        expected is None or type(element) is expected for element in value
    )


def _undeclared(subject: VerifyContext, node: Node, key: str) -> Finding:
    signature = subject.signatures.of(node.op)
    message = f"{node.op} declares no attribute {key!r}"
    hint = subject.suggest(key, signature.attrs if signature else ())
    hint = hint or "names of custom attributes start with an underscore"
    return Finding("CFG112", "warning", message, node.name, hint)


def _wrong_kind(node: Node, attr: AttrDef, value: Any) -> Finding:
    message = f"attribute {attr.name!r} is {_describe_kind(value)}, {node.op} expects {attr.kind}"
    return Finding("CFG113", "error", message, node.name)


def _describe_kind(value: Any) -> str:
    """The kind of a value, as written in a signature."""
    if isinstance(value, tuple):
        return f"list({_describe_kind(value[0])})" if value else "an empty list"
    for kind, python in _PYTHON.items():
        if type(value) is python:
            return kind
    if isinstance(value, AttrPlaceholder):
        return f"the placeholder {value.name!r}"
    return (
        "unset or of mixed kind" if hasattr(value, "data") else f"a Python {type(value).__name__}"
    )


def _out_of_bounds(node: Node, attr: AttrDef, value: Any) -> Finding | None:
    parts = value if isinstance(value, tuple) else (value,)
    # the declarations of a function come from the file and may be inconsistent
    allowed = attr.allowed if isinstance(attr.allowed, tuple) else parts
    strange = [element for element in parts if element not in allowed]
    if strange:
        shown = ", ".join(map(_format_value, allowed))
        message = f"attribute {attr.name!r} is {_format_value(strange[0])}, not one of {shown}"
        return Finding("CFG114", "error", message, node.name)
    size = len(value) if isinstance(value, tuple) else value
    if attr.minimum is not None and type(size) is int and size < attr.minimum:
        problem = "has length" if isinstance(value, tuple) else "is"
        message = f"attribute {attr.name!r} {problem} {size}, expected at least {attr.minimum}"
        return Finding("CFG115", "error", message, node.name)
    return None


def _format_value(value: Any) -> str:
    if isinstance(value, bytes):
        return repr(value.decode("utf-8", "backslashreplace"))
    return str(value)


def check_constants(subject: VerifyContext) -> Iterator[Finding]:
    """The header of every constant tensor is valid and has the declared type."""
    for op, nodes in subject.by_op.items():
        signature = subject.signatures.of(op)
        if signature is not None and not any("tensor" in a.kind for a in signature.attrs.values()):
            continue
        is_constant = signature is not None and _is_constant(signature)
        for node in nodes:
            yield from _tensors(node, is_constant)


def _tensors(node: Node, is_constant: bool) -> Iterator[Finding]:
    for key, value in node.attrs.items():
        for tensor in value if type(value) is tuple else (value,):
            if type(tensor) is not TensorValue:
                continue
            try:
                tensor.check()
            except InvalidInput as error:
                message = f"attribute {key!r}: {error.message}"
                yield Finding(error.code or "CFG020", "error", message, node.name)
                continue
            declared = node.attrs.get("dtype")
            if is_constant and isinstance(declared, DType) and tensor.dtype is not declared:
                message = f"the constant contains {tensor.dtype}, attribute 'dtype' is {declared}"
                yield Finding("CFG302", "error", message, node.name)


def _is_constant(signature: Signature) -> bool:
    """True for an op that outputs its tensor attribute."""
    returned = [arg.type_attr for arg in signature.outputs]
    return not signature.inputs and "value" in signature.attrs and returned == ["dtype"]
