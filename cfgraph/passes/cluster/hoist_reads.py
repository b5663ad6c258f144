"""Read variables before the loops that read them, where nothing writes before the loops end.

    handle ▸ Enter ▸ ReadVariableOp      becomes      handle ▸ ReadVariableOp ▸ Enter ▸ Identity
    handle ▸ Enter ▸ ResourceGather      becomes      handle ▸ ReadVariableOp ▸ Enter ▸ Gather

A loop with effects is not functionalized, and a read of a variable is one. The variable is then
read also for a loop without iterations, so that it must have a value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.role import Role
from cfgraph.ops.families.resource_variables import VariableRead
from cfgraph.ops.opdef.op import is_a, lookup, role_of


def hoist_reads(graph: Graph, fed: Collection[Node] = ()) -> list[Node]:
    """Hoist the reads in the loops of a lowered graph, in place, except `fed` ones.

    Return the new reads.
    """
    loops = frames(graph)
    if len(loops.all) == 1 or not any(is_a(node, VariableRead) for node in graph):
        return []
    writers = _writers(graph)
    if writers is None or any(loops.of[node] is not loops.root for node in writers):
        return []
    permitted: dict[Frame, bool] = {}
    hoisted: dict[Node, Node] = {}  # the new read by the Enter of its handle
    todo = [node for node in graph if is_a(node, VariableRead) and node not in fed]
    for read in todo:
        _hoist(graph, loops, read, writers, permitted, hoisted)
    return list(hoisted.values())


def _hoist(
    graph: Graph,
    loops: Frames,
    read: Node,
    writers: Collection[Node],
    permitted: dict[Frame, bool],
    hoisted: dict[Node, Node],
) -> None:
    """Hoist one read out of all loops if that is permitted."""
    op = lookup(read.op)
    assert op is not None
    assert issubclass(op, VariableRead)
    attrs_of_read = op.value_attrs(read)
    enters, frame, handle = list[Node](), loops.of[read], read.inputs[0]
    while frame.parent is not None:
        enter = handle.node
        if role_of(enter) is not Role.ENTER or not enter.attr("is_constant"):
            return
        enters.append(enter)
        outermost, frame, handle = frame, frame.parent, enter.inputs[0]
    if not enters or attrs_of_read is None:
        return
    if outermost not in permitted:
        permitted[outermost] = _follow(writers, outermost.exits)
    if not permitted[outermost]:
        return
    dtype = read.attr("dtype")
    key = enters[-1]
    if key not in hoisted:
        name = graph.unique_name(f"{read.name}/before")
        hoisted[key] = graph.add(
            "ReadVariableOp", handle, name=name, dtype=dtype, device=read.device
        )
    value = hoisted[key].output()
    for enter in reversed(enters):
        attrs = {key: value for key, value in enter.attrs.items() if not key.startswith("_")}
        copy = graph.create(
            graph.unique_name(f"{read.name}/enter"),
            enter.op,
            attrs={**attrs, "T": dtype},
            device=enter.device,
        )
        graph.connect(copy, [value], [])
        value = copy.output()
    graph.set_op(read, op.value_op, attrs_of_read)
    graph.set_inputs(read, [value, *read.inputs[1:]])


def _writers(graph: Graph) -> list[Node] | None:
    """The nodes that write to lasting resources; None if a call may write to any."""
    if any(_may_write_unseen(node) for node in graph):
        return None
    accesses = EffectAnalysis().accesses(graph)
    return list(
        dict.fromkeys(access.node for access in accesses if access.writes and not access.origin)
    )


def _may_write_unseen(node: Node) -> bool:
    op = lookup(node.op)
    return op is None or bool(op.calls.kind)


def _follow(nodes: Collection[Node], sources: Iterable[Node]) -> bool:
    """True if all nodes are reachable from the sources."""
    reached = dict.fromkeys(sources)
    todo = list(reached)
    missing = set(nodes).difference(reached)
    while todo and missing:
        node = todo.pop()
        for reader in (*(use.node for use in node.uses), *node.control_readers):
            if reader not in reached:
                reached[reader] = None
                missing.discard(reader)
                todo.append(reader)
    return not missing
