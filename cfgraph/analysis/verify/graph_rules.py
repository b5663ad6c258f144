"""Rules for nodes (names, ops, attributes), edges (inputs, types), loops, and the graph version."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.loops.frame import DEFAULT_PARALLEL_ITERATIONS, Frame
from cfgraph.analysis.loops.frames import cycle_findings
from cfgraph.analysis.verify.context import VerifyContext
from cfgraph.errors import InvalidInput
from cfgraph.ir import registry
from cfgraph.ir.attrs import PYTHON_TYPES, AttrPlaceholder, TensorValue, kind_text
from cfgraph.ir.colocation import COLOCATION_ATTR, colocated_name
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.names import NODE_NAME, misspelled_op_hint
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.signature import MAX_COUNT, AttrDef, Signature
from cfgraph.ir.text.inferred_attrs import infer_node_attrs
from cfgraph.ir.text.printer import AttrPrinter

_CASTABLE = ("float", "int", "uint", "complex", "bool")


def check_edges(subject: VerifyContext) -> Iterator[Finding]:
    """Every input is an existing output of the expected type."""
    types = subject.types
    for node in subject.nodes:
        inputs = node.inputs
        expected = types[node][0]
        if expected is not None and len(expected) != len(inputs):
            yield _wrong_input_count(subject, node, len(expected))
            expected = None
        for slot, (source, port) in enumerate(inputs):
            known = types.get(source)
            if known is None:
                yield _foreign_source(node, f"input {slot}", source)
                continue
            outputs = known[1]
            if outputs is None:
                if not 0 <= port < MAX_COUNT:
                    yield _missing_port(node, slot, source, port, None)
            elif not 0 <= port < len(outputs):
                yield _missing_port(node, slot, source, port, len(outputs))
            elif expected is not None and outputs[port] is not expected[slot]:
                yield from _check_type(node, slot, source, port, outputs[port], expected[slot])
        if node.controls:
            yield from _check_controls(node, types)


def _check_controls(node: Node, nodes: Container[Node]) -> Iterator[Finding]:
    for control in node.controls:
        if control not in nodes:
            yield _foreign_source(node, "a control input", control)
    if len(set(node.controls)) != len(node.controls):
        twice = next(item for item in node.controls if node.controls.count(item) > 1)
        message = f"the control input ^{twice.name} is listed more than once"
        yield Finding("CFG116", "warning", message, node.name, None, (twice.name,))


def _foreign_source(node: Node, edge: str, source: Node) -> Finding:
    message = f"{edge} reads {source.name!r}, which is not a node of the graph"
    return Finding("CFG105", "error", message, node.name, None, (source.name,))


def _wrong_input_count(subject: VerifyContext, node: Node, expected: int) -> Finding:
    actual = len(node.inputs)
    message = (
        f"{node.op} reads {expected} input{'s' * (expected != 1)}, "
        f"{actual} {'is' if actual == 1 else 'are'} given"
    )
    signature = subject.signatures.find(node.op)
    counts = {arg.count for arg in signature.inputs if arg.count} if signature else set()
    declared = [f"{name}={node.attrs[name]}" for name in sorted(counts) if name in node.attrs]
    hint = f"its attribute declares {declared[0]}" if len(declared) == 1 else None
    return Finding("CFG107", "error", message, node.name, hint)


def _missing_port(node: Node, slot: int, source: Node, port: int, count: int | None) -> Finding:
    has = "" if count is None else f"; {source.op} has {count} output{'s' * (count != 1)}"
    message = f"input {slot} reads {source.name}:{port}, which does not exist{has}"
    return Finding("CFG108", "error", message, node.name, None, (source.name,))


def _check_type(
    node: Node, slot: int, source: Node, port: int, have: DType | None, want: DType | None
) -> Iterator[Finding]:
    if have is None or want is None or (have.base is want and not want.is_ref):
        return
    message = f"input {slot} is {source.name}:{port} of type {have}, {node.op} expects {want}"
    hint = None
    if want.is_ref and have is want.base:
        hint = "read the variable itself, not a copy of its value"
    elif have.kind in _CASTABLE and want.kind in _CASTABLE and not want.is_ref:
        hint = "insert a Cast"
    yield Finding("CFG301", "error", message, node.name, hint, (source.name,))


def check_cycles(subject: VerifyContext) -> Iterator[Finding]:
    """Every cycle closes through a NextIteration that feeds a Merge."""
    yield from cycle_findings(subject.cycles, subject.graph)


def check_frames(subject: VerifyContext) -> Iterator[Finding]:
    """Frames are consistent; they are not checked if the graph has cycles."""
    if not subject.frames.cycles:
        yield from subject.frames.faults


def _sound_loops(subject: VerifyContext) -> list[Frame]:
    """The frames of a graph with consistent frames, without the root."""
    graph_frames = subject.frames if subject.loop_ops else None
    if graph_frames is None or graph_frames.cycles or graph_frames.faults:
        return []
    return graph_frames.all[1:]


def check_parallel_iterations(subject: VerifyContext) -> Iterator[Finding]:
    """parallel_iterations is at least 1 and the same for all Enters of a frame."""
    for op, nodes in subject.by_op.items():
        signature = subject.signatures.find(op)
        if signature is None or "parallel_iterations" not in signature.attrs:
            continue
        for node in nodes:
            bound = node.attrs.get("parallel_iterations", 1)
            if type(bound) is int and bound < 1:
                message = f"parallel_iterations is {bound}; a loop needs at least 1 to run"
                yield Finding("CFG210", "error", message, node.name)
    for frame in _sound_loops(subject):
        for enter in frame.enters:
            bound = enter.attrs.get("parallel_iterations", DEFAULT_PARALLEL_ITERATIONS)
            if bound != frame.parallel_iterations:
                first = frame.enters[0].name
                message = (
                    f"parallel_iterations is {bound}, but {frame.parallel_iterations} "
                    f"at {first!r}, the first Enter of the frame, which decides"
                )
                yield Finding("CFG211", "warning", message, enter.name, None, (first,), str(frame))
                break


def check_next_iterations(subject: VerifyContext) -> Iterator[Finding]:
    """Every NextIteration feeds a Merge."""
    for frame in _sound_loops(subject):
        for node in frame.next_iterations:
            if not any(use.slot >= 0 and ROLES[use.node.op] is Role.MERGE for use in node.uses):
                message = "the NextIteration feeds no Merge, so its value is lost"
                hint = "let the Merge of the loop variable read it"
                yield Finding("CFG212", "warning", message, node.name, hint, (), str(frame))


def check_loop_structure(subject: VerifyContext) -> Iterator[Finding]:
    """A loop has a LoopCond, an Exit, and a unique name."""
    first_of_name: dict[str, Frame] = {}
    for frame in _sound_loops(subject):
        enter = frame.enters[0].name
        if frame.next_iterations and not frame.loop_conds:
            yield from _missing_loop_cond(frame, enter)
        if frame.next_iterations and not frame.exits:
            message = "no Exit leads out of the loop; its results cannot be read"
            yield Finding("CFG214", "note", message, enter, None, (), str(frame))
        first = first_of_name.setdefault(frame.name, frame)
        if first.parent is not frame.parent:
            message = (
                f"the frame name {frame.name!r} is also used in another frame; "
                "cfgraph distinguishes the two loops, TensorFlow does not"
            )
            hint = "use a different frame name for each loop"
            related = (first.enters[0].name,)
            yield Finding("CFG216", "note", message, enter, hint, related, str(frame))


def _missing_loop_cond(frame: Frame, enter: str) -> Iterator[Finding]:
    devices = sorted({node.device for node in frame.nodes if node.device})
    if len(devices) > 1:
        message = f"the loop spans {len(devices)} devices but has no LoopCond"
        hint = "add a LoopCond; the devices need it to agree on the end of the loop"
        yield Finding("CFG215", "warning", message, enter, hint, tuple(devices), str(frame))
    else:
        message = "the loop has no LoopCond, so it must stay on one device"
        yield Finding("CFG213", "note", message, enter, None, (), str(frame))


# values that are cheap to compare and equal only to their own type
_COMPARABLE: Final = frozenset((bytes, int, bool, DType))


def check_names(subject: VerifyContext) -> Iterator[Finding]:
    """Every node has a valid name and an op."""
    nodes = subject.nodes
    are_valid = "" not in subject.by_op and all(map(NODE_NAME, [node.name for node in nodes]))
    for node in () if are_valid else nodes:
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
    for op, nodes in subject.by_op.items():
        if not op or subject.signatures.find(op) is not None:
            continue
        others = f" ({len(nodes)} nodes)" if len(nodes) > 1 else ""
        message = f"unknown op {op!r}{others}; it is preserved but cannot run"
        hint = _op_hint(subject, op)
        related = tuple(node.name for node in nodes[1:])
        yield Finding("CFG101", "warning", message, nodes[0].name, hint, related)


def check_attributes(subject: VerifyContext) -> Iterator[Finding]:
    """Every node has the declared attributes, with allowed values."""
    for op, nodes in subject.by_op.items():
        signature = subject.signatures.find(op)
        if signature is not None:
            yield from _check_attributes_of_op(subject, signature, nodes)


def _check_attributes_of_op(
    subject: VerifyContext, signature: Signature, nodes: list[Node]
) -> Iterator[Finding]:
    declared, in_function = signature.attrs, bool(subject.function)
    required, (free, fine) = signature.required_attrs, _allowed_values(signature)
    for node in nodes:
        attrs = node.attrs
        if not required.issubset(attrs):
            yield from _missing(subject, node, declared, required)
        for key, value in attrs.items():
            kind = type(value)
            if free.get(key) is kind or (key.startswith("_") and kind is not AttrPlaceholder):
                continue
            if kind in _COMPARABLE and (key, kind, value) in fine:
                continue
            finding = _check_attribute(subject, node, key, declared.get(key), in_function)
            if finding is not None:
                yield finding
            elif kind in _COMPARABLE and len(fine) < _MAX_FINE:
                fine.add((key, kind, value))


# attributes whose values only have to be of a type, with it; and allowed values, each with its
# attribute and type
_AllowedValues = tuple[dict[str, type | None], set[tuple[str, type, Any]]]
_MAX_FINE: Final = 256
# signatures are never modified
_allowed: WeakKeyDictionary[Signature, _AllowedValues] = WeakKeyDictionary()


def _allowed_values(signature: Signature) -> _AllowedValues:
    """The allowed values of attributes, as far as they are known."""
    values = _allowed.get(signature)
    if values is None:
        free = {
            attr.name: PYTHON_TYPES.get(attr.kind)
            for attr in signature.attrs.values()
            if attr.minimum is None and attr.allowed is None
        }
        values = _allowed[signature] = free, set()
    return values


def _missing(
    subject: VerifyContext, node: Node, declared: Mapping[str, AttrDef], required: frozenset[str]
) -> Iterator[Finding]:
    clauses = infer_node_attrs(node)
    for key in sorted(required - node.attrs.keys()):
        message = f"{node.op} needs the attribute {key!r} ({declared[key].kind})"
        hint = AttrPrinter().attrs_text({key: clauses[key]}) if key in clauses else None
        hint = hint and f"its inputs imply {hint}"
        implied = hint is None and declared[key].kind in ("type", "list(type)")
        source = _unknown_source(subject, node) if implied else None
        if source is not None:
            message = f"its input {source.name!r} has the unknown op {source.op!r}; {message}"
            hint = _op_hint(subject, source.op)
        yield Finding("CFG110", "error", message, node.name, hint)


def _unknown_source(subject: VerifyContext, node: Node) -> Node | None:
    """The first input of an unknown op, whose types are unknown."""
    sources = (item.node for item in node.inputs)
    return next((item for item in sources if subject.signatures.find(item.op) is None), None)


def _op_hint(subject: VerifyContext, op: str) -> str | None:
    known = [*registry.op_names(), *subject.signatures.library]
    hint = subject.signatures.suggest(op, known, misspelled_op_hint)
    return hint or "declare an op of a library with --op-def FILE"


def _check_attribute(
    subject: VerifyContext, node: Node, key: str, attr: AttrDef | None, in_function: bool
) -> Finding | None:
    value = node.attrs[key]
    if in_function and isinstance(value, AttrPlaceholder) and (attr or key.startswith("_")):
        return None
    if attr is None and isinstance(value, AttrPlaceholder) and not in_function:
        message = f"attribute {key!r} is {kind_text(value)}, which only functions have"
        return Finding("CFG113", "error", message, node.name)
    if attr is None:
        return _undeclared(subject, node, key)
    fault = registry.attribute_fault(node.op, attr, value)
    return None if fault is None else Finding(fault[0], "error", fault[1], node.name)


def _undeclared(subject: VerifyContext, node: Node, key: str) -> Finding:
    signature = subject.signatures.find(node.op)
    message = f"{node.op} declares no attribute {key!r}"
    hint = subject.signatures.suggest(key, signature.attrs if signature else ())
    hint = hint or "names of custom attributes start with an underscore"
    return Finding("CFG112", "warning", message, node.name, hint)


def check_constants(subject: VerifyContext) -> Iterator[Finding]:
    """The header of every constant tensor is valid and has the declared type."""
    for op, nodes in subject.by_op.items():
        signature = subject.signatures.find(op)
        if signature is not None and not signature.has_tensors:
            continue
        is_constant = signature is not None and _is_constant(signature)
        for node in nodes:
            for key, value in node.attrs.items():
                for tensor in value if type(value) is tuple else (value,):
                    finding = None
                    if type(tensor) is TensorValue:
                        finding = _check_tensor(node, key, tensor, is_constant=is_constant)
                    if finding is not None:
                        yield finding


def _check_tensor(
    node: Node, key: str, tensor: TensorValue, *, is_constant: bool
) -> Finding | None:
    try:
        tensor.check()
    except InvalidInput as error:
        message = f"attribute {key!r}: {error.message}"
        return Finding(error.code or "CFG020", "error", message, node.name)
    declared = node.attrs.get("dtype")
    if is_constant and type(declared) is DType and tensor.dtype is not declared:
        message = f"the constant contains {tensor.dtype}, attribute 'dtype' is {declared}"
        return Finding("CFG302", "error", message, node.name)
    return None


def _is_constant(signature: Signature) -> bool:
    """True for an op that outputs its tensor attribute."""
    returned = [arg.type_attr for arg in signature.outputs]
    return not signature.inputs and "value" in signature.attrs and returned == ["dtype"]


def check_colocation(subject: VerifyContext) -> Iterator[Finding]:
    """Every colocation constraint names an existing node."""
    for node in subject.colocated:
        groups = node.attrs[COLOCATION_ATTR]
        if groups is None:
            continue
        if not isinstance(groups, tuple):
            message = "attribute '_class' is not a list of names; the node is not colocated"
            yield Finding("CFG401", "warning", message, node.name)
            continue
        for group in groups:
            name = colocated_name(group)
            if name is not None and name not in subject.graph.nodes:
                message = f"the node is colocated with {name!r}, which does not exist"
                hint = subject.signatures.suggest(name, subject.graph.nodes)
                yield Finding("CFG401", "warning", message, node.name, hint)


# the GraphDef version of TensorFlow 2.21, which this package follows
_CONSUMER: Final = 2474


def check_versions(subject: VerifyContext) -> Iterator[Finding]:
    """The graph's versions admit this consumer."""
    producer, min_consumer, bad_consumers = subject.graph.versions
    if producer < 0:
        message = f"invalid producer version {producer}"
        yield Finding("CFG120", "error", message)
    if min_consumer > _CONSUMER:
        message = (
            f"the graph requires consumer version {min_consumer} or later, this is {_CONSUMER}"
        )
        yield Finding("CFG120", "error", message, hint="a newer version of cfgraph may read it")
    if _CONSUMER in bad_consumers:
        message = f"the graph excludes consumer version {_CONSUMER}, which this is"
        yield Finding("CFG120", "error", message, hint="write it again with another producer")
