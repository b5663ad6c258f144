"""Rules on loops: cycles close through NextIteration, frames nest and agree with themselves."""

from __future__ import annotations

from collections.abc import Iterator

from cfgraph.analysis.cycles import cycle_faults
from cfgraph.analysis.findings import Finding
from cfgraph.analysis.frames import DEFAULT_PARALLEL_ITERATIONS, Frame
from cfgraph.analysis.subject import Subject


def cycles(subject: Subject) -> Iterator[Finding]:
    """Every cycle closes through a NextIteration that feeds a Merge."""
    yield from cycle_faults(subject.frames.cycles, subject.graph)


def loops(subject: Subject) -> Iterator[Finding]:
    """Nodes and frames fit each other; where cycles are in the way, nobody knows the frames."""
    if not subject.frames.cycles:
        yield from subject.frames.faults


def _loops(subject: Subject) -> list[Frame]:
    """The frames of a graph whose frames are sound, but for the root."""
    found = subject.frames
    return [] if found.cycles or found.faults else found.all[1:]


def parallel_iterations(subject: Subject) -> Iterator[Finding]:
    """The bound on overlapping iterations is at least 1, and one for each frame."""
    for op, nodes in subject.by_op.items():
        signature = subject.signatures.of(op)
        if signature is None or "parallel_iterations" not in signature.attrs:
            continue
        for node in nodes:
            bound = node.attrs.get("parallel_iterations", 1)
            if type(bound) is int and bound < 1:
                message = f"parallel_iterations is {bound}; a loop needs at least 1 to run"
                yield Finding("CFG210", "error", message, node.name)
    for frame in _loops(subject):
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


def next_iterations(subject: Subject) -> Iterator[Finding]:
    """Every NextIteration feeds a Merge."""
    roles = subject.roles
    for frame in _loops(subject):
        for node in frame.next_iterations:
            if not any(use.slot >= 0 and roles[use.node.op] == "merge" for use in node.uses):
                message = "the NextIteration feeds no Merge, so its value is lost"
                hint = "let the Merge of the loop variable read it"
                yield Finding("CFG212", "warning", message, node.name, hint, (), str(frame))


def frame_shapes(subject: Subject) -> Iterator[Finding]:
    """A loop has a LoopCond, an Exit, and a name of its own."""
    first_of_name: dict[str, Frame] = {}
    for frame in _loops(subject):
        enter = frame.enters[0].name
        if frame.next_iterations and not frame.loop_conds:
            yield from _without_condition(frame, enter)
        if frame.next_iterations and not frame.exits:
            message = "no Exit leads out of the loop; its results cannot be read"
            yield Finding("CFG214", "note", message, enter, None, (), str(frame))
        first = first_of_name.setdefault(frame.name, frame)
        if first.parent is not frame.parent:
            message = (
                f"the frame name {frame.name!r} is also used in another frame; cfgraph tells the "
                "two loops apart, TensorFlow does not"
            )
            hint = "give each loop a frame name of its own"
            related = (first.enters[0].name,)
            yield Finding("CFG216", "note", message, enter, hint, related, str(frame))


def _without_condition(frame: Frame, enter: str) -> Iterator[Finding]:
    devices = sorted({node.device for node in frame.nodes if node.device})
    if len(devices) > 1:
        message = f"the loop is asked for on {len(devices)} devices, but has no LoopCond"
        hint = "without a LoopCond the devices cannot agree when it ends"
        yield Finding("CFG215", "warning", message, enter, hint, tuple(devices), str(frame))
    else:
        message = "the loop has no LoopCond, so it must stay on one device"
        yield Finding("CFG213", "note", message, enter, None, (), str(frame))
