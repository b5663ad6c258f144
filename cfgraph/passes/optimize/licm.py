"""Loop-invariant code motion: what is the same in every iteration is computed before the loop.

    loop: y = Mul(Enter(a), Enter(b))       becomes    m = Mul(a, b);  loop: y is Enter(m)
    loop: y = Mul(Enter(a), Const, ^pivot)  becomes    m = Mul(a, Const);
                                                       loop: y = Identity(Enter(m), ^pivot)

A constant Enter is live in every iteration in which its input is, the last one included. A node
without control inputs runs whenever the loop starts, and so may fail before it just as well. A node
of the body, which waits for the pivot of an iteration, may never run: it moves only if it cannot
fail, and an Identity in its place waits for the pivot, so that it is live as before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from cfgraph.analysis.loops.frame import Frame
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.limits import check_deadline
from cfgraph.ops.families.constants import Const
from cfgraph.ops.opdef.op import is_a, is_identity, role_of
from cfgraph.passes.node_copier import NodeCopier
from cfgraph.passes.optimize.rewriting import RewriteContext, inherited_annotations

RULE: Final = "licm"
# an Identity is cheaper than one node only if that works on more elements
_MIN_ELEMENTS: Final = 256


class _Invariant:
    """An invariant node: the constant Enters, with what they enter, and the control inputs that it
    depends on, and the nodes to move with it, sources first.
    """

    __slots__ = ("enters", "guards", "nodes")

    def __init__(
        self,
        enters: Mapping[Node, Output],
        guards: Mapping[Node, None],
        nodes: Mapping[Node, None],
    ) -> None:
        self.enters = enters
        self.guards = guards
        self.nodes = nodes


def licm(context: RewriteContext) -> None:
    """Move invariant nodes out of loops, one level at a time, inner loops first."""
    members: dict[Frame, list[Node]] = defaultdict(list)
    for node in context.nodes():
        members[context.frames.of[node]].append(node)
    for frame in reversed(context.frames.all):
        check_deadline()
        if frame.parent is not None and not frame.is_single_trip:
            _move_out(context, frame, members[frame])


def _move_out(context: RewriteContext, frame: Frame, members: list[Node]) -> None:
    """Move the invariant nodes of a loop to its parent frame."""
    invariants: dict[Node, _Invariant] = {}
    ordered = [node for node in members if context.graph.nodes.get(node.name) is node]
    for node in ordered:
        found = _invariant(context, node, frame, invariants)
        if found is not None:
            invariants[node] = found
    copier = NodeCopier(context.graph)
    for node in ordered:
        if context.graph.nodes.get(node.name) is not node or node not in invariants:
            continue
        last = any(use.node not in invariants for use in node.uses) or node in context.protected
        if last and _is_worthwhile(context, node, invariants[node]):
            _replace(context, node, invariants, copier)


def _invariant(
    context: RewriteContext, node: Node, frame: Frame, known: Mapping[Node, _Invariant]
) -> _Invariant | None:
    """Describe a node whose inputs are the same in every iteration; None for any other."""
    if any(context.frames.of_outputs.get(control) is not frame for control in node.controls):
        return None
    if is_a(node, Const):
        return _Invariant({}, dict.fromkeys(node.controls), {node: None})
    if not context.is_pure(node) or not node.inputs or node.attrs.get("_class"):
        return None
    if any(t.kind in ("variant", "resource") for t in node.output_types or ()):
        return None
    enters: dict[Node, Output] = {}
    guards = dict.fromkeys(node.controls)
    nodes: dict[Node, None] = {}
    for tensor in node.inputs:
        source = tensor.node
        if tensor in context.fed or source in context.frozen:
            return None
        if role_of(source) is Role.ENTER and source.attr("is_constant"):
            enters[source] = source.inputs[0]
        elif source in known:
            enters |= known[source].enters
            guards |= known[source].guards
            nodes |= known[source].nodes
        else:
            return None
    return _Invariant(enters, guards, nodes | {node: None})


def _is_worthwhile(context: RewriteContext, node: Node, found: _Invariant) -> bool:
    """True if a node, moved with what it depends on, makes an iteration shorter and is safe."""
    if not found.enters or node.output_count != 1 or is_a(node, Const):
        return False
    computing = [n for n in found.nodes if not is_a(n, Const) and not is_identity(n)]
    if not computing:
        return False
    if not found.guards:
        return True
    if not all(map(context.cannot_fail, computing)):
        return False
    elements = context.shapes[node.output()].elements
    return len(found.nodes) > 1 or elements is None or elements >= _MIN_ELEMENTS


def _replace(
    context: RewriteContext,
    node: Node,
    invariants: Mapping[Node, _Invariant],
    copier: NodeCopier,
) -> None:
    """Read a node's value from before the loop."""
    graph, found = context.graph, invariants[node]
    # the Enter has left the graph if the nodes that read it have moved
    enter, outer = next(iter(found.enters.items()))
    waits = [] if context.frames.of[enter] is context.frames.root else [outer.node]
    copier.tensors.update((each.output(), source) for each, source in found.enters.items())
    for moved in found.nodes:
        if moved not in copier.copies:
            inputs, controls = map(copier.output, moved.inputs), [] if moved.inputs else waits
            name = f"{moved.name}/invariant"
            copier.copy(moved, name, moved.attrs, moved.device, inputs, controls)
    types = node.output_types or []
    attrs: dict[str, Any] = {**_plain_attrs(enter), "T": types[0]}
    name = graph.unique_name(f"{node.name}/Enter")
    moved_value = copier.output(node.output())
    entered = graph.create(name, "Enter", [moved_value], (), attrs, node.device)
    copier.tensors[entered.output()] = moved_value
    context.log(RULE, node, node.op, entered.name)
    sources = node.predecessors
    if found.guards or node.control_readers or node in context.protected:
        graph.connect(node, [entered.output()], tuple(found.guards))
        graph.set_op(node, "Identity", {"T": types[0], **inherited_annotations(node)})
        context.discard(sources)
    else:
        context.names[f"{node.name}:0"] = (f"{entered.name}:0",)
        graph.replace_uses(node.output(), entered.output())
        context.discard([node])


def _plain_attrs(enter: Node) -> dict[str, Any]:
    return {key: value for key, value in enter.attrs.items() if key[:1] != "_"}
