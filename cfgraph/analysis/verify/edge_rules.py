"""Rules for edges (number and types of inputs) and loops (cycles, frames, parallel_iterations)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.loops.frames import DEFAULT_PARALLEL_ITERATIONS, Frame
from cfgraph.analysis.loops.verify_frames import cycle_findings
from cfgraph.analysis.verify.context import VerifyContext
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.role import Role
from cfgraph.ir.signature import MAX_COUNT

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
            if source not in types:
                yield _foreign_source(node, f"input {slot}", source)
                continue
            outputs = types[source][1]
            if outputs is None:
                if not 0 <= port < MAX_COUNT:
                    yield _missing_port(node, slot, source, port, None)
            elif not 0 <= port < len(outputs):
                yield _missing_port(node, slot, source, port, len(outputs))
            elif expected is not None and outputs[port] is not expected[slot]:
                yield from _check_type(node, slot, source, port, outputs[port], expected[slot])
        if node.controls:
            yield from _check_controls(node, subject.graph.nodes)


def _check_controls(node: Node, nodes: Mapping[str, Node]) -> Iterator[Finding]:
    for control in node.controls:
        if nodes.get(control.name) is not control:
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
    signature = subject.signatures.of(node.op)
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
    yield from cycle_findings(subject.frames.cycles, subject.graph)


def check_frames(subject: VerifyContext) -> Iterator[Finding]:
    """Frames are consistent; they are not checked if the graph has cycles."""
    if not subject.frames.cycles:
        yield from subject.frames.faults


def _sound_loops(subject: VerifyContext) -> list[Frame]:
    """The frames of a graph with consistent frames, without the root."""
    graph_frames = subject.frames
    return [] if graph_frames.cycles or graph_frames.faults else graph_frames.all[1:]


def check_parallel_iterations(subject: VerifyContext) -> Iterator[Finding]:
    """parallel_iterations is at least 1 and the same for all Enters of a frame."""
    for op, nodes in subject.by_op.items():
        signature = subject.signatures.of(op)
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
    roles = subject.roles
    for frame in _sound_loops(subject):
        for node in frame.next_iterations:
            if not any(use.slot >= 0 and roles[use.node.op] is Role.MERGE for use in node.uses):
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
