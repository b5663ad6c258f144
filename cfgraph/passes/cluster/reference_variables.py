"""Access variables by handles instead of references, in the graph of one run, for clusters.

    VariableV2 ▸ Identity ▸ MatMul    becomes    VarHandleOp ▸ ReadVariableOp ▸ MatMul
    VariableV2 ▸ AssignSub            becomes    VarHandleOp ▸ AssignSubVariableOp

A reader of a reference gets the value of the time at which it runs. Where no write comes before,
the Identity reads, or one node for all readers of a reference. Behind a write, each reader has a
read of its own, which waits for all that the reader waits for. What is fetched by reference has the
value after the run, and remains a reference. A variable with a use that a handle has not stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cfgraph.analysis.resource_handles import variable_key
from cfgraph.ir import registry
from cfgraph.ir.dtypes import resource
from cfgraph.ir.graph import Graph, Node, Output, Use
from cfgraph.ir.names import encode_key
from cfgraph.ir.role import FORWARDING_ROLES, Role
from cfgraph.ir.traversal import reachable
from cfgraph.ops.families.constants import Identity, RefIdentity
from cfgraph.ops.families.resource_variables import BY_REFERENCE, VarHandleOp
from cfgraph.ops.families.variables import Assign, VariableV2
from cfgraph.ops.opdef.op import is_a, lookup, may_write, role_of
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes

# ops that access a variable by reference, and by handle
_BY_HANDLE: Final = {
    "Assign": "AssignVariableOp",
    "AssignAdd": "AssignAddVariableOp",
    "AssignSub": "AssignSubVariableOp",
    "CountUpTo": "ResourceCountUpTo",
    "IsVariableInitialized": "VarIsInitializedOp",
}
_PREFIXES: Final = ("Apply", "SparseApply", "Scatter")


def replace_references(graph: Graph, fed: Collection[Node], fetched: Collection[Node]) -> None:
    """Replace the references to variables of a lowered graph by handles, in place."""
    handles = {variable_key(node) for node in graph if is_a(node, VarHandleOp)}
    variables = [
        node for node in graph if is_a(node, VariableV2) and variable_key(node) not in handles
    ]
    if not variables:
        return
    shapes = infer_shapes(graph)
    traced = {node: _ReferenceUses(node, {*fed}, {*fetched}, shapes) for node in variables}
    usable = {node: uses for node, uses in traced.items() if uses.trace()}
    owners = {output: node for node, uses in traced.items() for output in uses.references}
    while refused := [node for node, uses in usable.items() if uses.shares(owners, usable)]:
        for node in refused:
            del usable[node]
    writers = [node for node in graph if may_write(node) and any(map(_is_reference, node.inputs))]
    after = [use.node for writer in writers for use in writer.uses]
    late = {*reachable(after, lambda node: [use.node for use in node.uses])}
    _Replacement(graph, usable, late).run()


def _by_handle(node: Node) -> str:
    """The op that does by a handle what a node does by reference; empty if there is none."""
    name = _BY_HANDLE.get(node.op, f"Resource{node.op}" if node.op.startswith(_PREFIXES) else "")
    return name if lookup(name) is not None else ""


def _is_reference(tensor: Output) -> bool:
    return tensor.dtype is not None and tensor.dtype.is_ref


def _takes_reference(reader: Node, slot: int) -> bool:
    types = reader.input_types
    return types is None or types[slot].is_ref


@dataclass(slots=True)
class _ReferenceUses:
    """The uses of the references to a variable, and of what forwards them, in order.

    `accesses` take references as such, and `readers` their values.
    """

    variable: Node
    fed: set[Node]
    fetched: set[Node]
    shapes: StaticShapes
    references: dict[Output, None] = field(default_factory=dict)
    forwarded: list[tuple[Node, Output]] = field(default_factory=list)
    accesses: dict[Node, None] = field(default_factory=dict)
    readers: list[tuple[Use, Output]] = field(default_factory=list)

    def trace(self) -> bool:
        """Find all uses; return false if a handle has no such use."""
        self.references[self.variable.output()] = None
        if self.variable in self.fed:
            return False
        for tensor in (todo := [*self.references]):
            for use in tensor.node.readers(tensor.port):
                new = self._outputs(use, tensor)
                if new is None:
                    return False
                new = [output for output in new if output not in self.references]
                self.references.update(dict.fromkeys(new))
                todo += new
        return True

    def _outputs(self, use: Use, tensor: Output) -> list[Output] | None:
        """The references that a use returns; None for a use that a handle has not."""
        node = use.node
        if node in self.fed:
            return None
        is_predicate = role_of(node) is Role.SWITCH and use.slot == 1
        is_forwarded = role_of(node) in FORWARDING_ROLES or is_a(node, Identity, RefIdentity)
        if is_forwarded and not is_predicate:
            if not _forwards_handle(node) or (role_of(node) and node in self.fetched):
                return None
            self.forwarded.append((node, tensor))
            return node.outputs
        if not _takes_reference(node, use.slot):
            self.readers.append((use, tensor))
            return []
        if not _by_handle(node) or not self._keeps_shape(node):
            return None
        self.accesses[node] = None
        return [node.output()] if _returns_reference(node) else []

    def _keeps_shape(self, node: Node) -> bool:
        """False for an assignment that may have to fail for the shape of its value."""
        if not is_a(node, Assign) or not node.attr("validate_shape"):
            return True
        value = self.shapes[node.inputs[1]]
        return value.is_full and value == self.variable.attr("shape")

    def late_references(self, late: Collection[Node]) -> set[Output]:
        """The references that are accessed, or read after a write, or forwarded to such a use."""
        found = {tensor for node in self.accesses for tensor in node.inputs}
        found |= {reference for use, reference in self.readers if use.node in late}
        nodes = {tensor.node for tensor in found}
        for node, source in reversed(self.forwarded):
            if node in nodes:
                found.add(source)
                nodes.add(source.node)
        return found

    def shares(self, owners: dict[Output, Node], usable: Collection[Node]) -> bool:
        """True if a node accesses also a variable that is not usable."""
        return any(
            owners.get(tensor) not in usable
            for node in self.accesses
            for slot, tensor in enumerate(node.inputs)
            if _takes_reference(node, slot)
        )


def _forwards_handle(node: Node) -> bool:
    """True for a node that forwards a handle as it forwards a reference, the same in each run."""
    role = role_of(node)
    return role in (None, Role.SWITCH, Role.EXIT) or (
        role is Role.ENTER and bool(node.attr("is_constant"))
    )


class _Handle(NamedTuple):
    """The stand-in for a reference: a handle, once the writes in `after` are done."""

    tensor: Output
    after: tuple[Node, ...] = ()


class _Replacement:
    """The replacement of the references to variables; nodes in `late` follow a write.

    `handles` has None for a reference in whose place a node forwards the value.
    """

    def __init__(
        self, graph: Graph, variables: Mapping[Node, _ReferenceUses], late: Collection[Node]
    ) -> None:
        self.graph, self.variables, self.late = graph, variables, late
        self.handles: dict[Output, _Handle | None] = {}
        self.sources: dict[Node, Output] = {}
        self.early: set[Output] = set()
        for node, uses in variables.items():
            self.handles[node.output()] = self._add_handle(node)
            self.sources.update(uses.forwarded)
            self.early |= uses.references.keys() - uses.late_references(late)
        self.reads: dict[Output, Node] = {}
        # the node itself, or the one that took its place where a run fetches its value
        self.replaced: dict[Node, Node] = {}

    def _add_handle(self, variable: Node) -> _Handle:
        container, name = variable_key(variable)
        handle = self.graph.add(
            "VarHandleOp",
            name=f"{variable.name}/handle",
            controls=variable.controls,
            device=variable.device,
            dtype=variable.attr("dtype"),
            shape=variable.attr("shape"),
            container=encode_key(container),
            shared_name=encode_key(name),
            attrs={BY_REFERENCE: True},
        )
        return _Handle(handle.output())

    def run(self) -> None:
        """Replace all references."""
        for variable, uses in self.variables.items():
            for reference in uses.references:
                self._handle(reference, variable)
            for node in uses.accesses:
                self._access(node, variable)
            for use, reference in uses.readers:
                self._read(use, reference, variable)

    def _handle(self, reference: Output, variable: Node) -> _Handle | None:
        """The replacement of a reference to a variable."""
        if reference not in self.handles:
            replace = self._forward if reference.node in self.sources else self._access
            replace(reference.node, variable)
        return self.handles[reference]

    def _forward(self, node: Node, variable: Node) -> None:
        """Let a node forward the handle, or read it."""
        outputs = node.outputs
        source = self._handle(self.sources[node], variable)
        if source is None:
            self.handles.update(dict.fromkeys(outputs))
            return
        inputs, controls = [source.tensor, *node.inputs[1:]], [*node.controls, *source.after]
        if node in self.variables[variable].fetched:
            self.graph.connect(node, [variable.output()], controls)
            name = f"{node.name}/handle"
            node = self.graph.add("Identity", *inputs, name=name, controls=controls)
        elif outputs[0] in self.early and is_a(node, Identity):
            self.handles[outputs[0]] = None
            self.graph.set_op(node, "ReadVariableOp", {"dtype": variable.attr("dtype")})
            self.graph.connect(node, inputs, controls)
            return
        else:
            attrs = {**node.attrs, "T": resource}
            self.graph.set_op(node, node.op.removeprefix("Ref"), attrs)
            self.graph.connect(node, inputs, controls)
        for each in outputs:
            self.handles[each] = _Handle(node.output(each.port))

    def _access(self, node: Node, variable: Node) -> None:
        """Let a node access its variables by handles."""
        if node in self.replaced:
            return
        self.replaced[node] = node
        is_returned, taken = _returns_reference(node), list[_Handle]()
        inputs = list(node.inputs)
        for slot, tensor in enumerate(inputs):
            if _takes_reference(node, slot):
                handle = self._handle(tensor, variable)
                assert handle is not None  # nothing reads early what is accessed
                inputs[slot] = handle.tensor
                taken.append(handle)
        after = [each for handle in taken for each in handle.after]
        controls = dict.fromkeys([*node.controls, *after])
        op, attrs = _by_handle(node), _attrs_by_handle(node)
        if is_returned and node in self.variables[variable].fetched:
            name = f"{node.name}/handle"
            new = self.graph.create(
                self.graph.unique_name(name), op, inputs, controls, attrs, node.device
            )
            self.graph.set_op(node, "RefIdentity", {"T": variable.attr("dtype")})
            self.graph.connect(node, [variable.output()], [new])
            self.replaced[node] = new
        else:
            new = node
            self.graph.set_op(node, op, attrs)
            self.graph.connect(node, inputs, controls)
        if is_returned:
            self.handles[node.output()] = _Handle(taken[0].tensor, (new,))

    def _read(self, use: Use, reference: Output, variable: Node) -> None:
        """Let a node read the variable, with what else reads the same reference if it can."""
        handle = self._handle(reference, variable)
        if handle is None:
            return
        node, is_late = self.replaced.get(use.node, use.node), use.node in self.late
        read = None if is_late else self.reads.get(reference)
        if read is None:
            awaited = self._awaited(node, use.slot) if is_late else ()
            read = self.graph.add(
                "ReadVariableOp",
                handle.tensor,
                name=f"{reference.node.name}/value",
                controls=dict.fromkeys([*handle.after, *awaited]),
                device=node.device,
                dtype=variable.attr("dtype"),
            )
        if not is_late:
            self.reads[reference] = read
        self.graph.set_input(node, use.slot, read.output())

    def _awaited(self, node: Node, read_slot: int) -> Iterator[Node]:
        """The nodes that a reader waits for, other than the one that it reads from."""
        yield from node.controls
        for slot, tensor in enumerate(node.inputs):
            if slot == read_slot:
                continue
            # a Switch runs also where its output is dead
            is_switch = role_of(tensor.node) is Role.SWITCH
            yield self.graph.add("Identity", tensor) if is_switch else tensor.node


def _returns_reference(node: Node) -> bool:
    return any(dtype.is_ref for dtype in node.output_types or ())


def _attrs_by_handle(node: Node) -> dict[str, Any]:
    """The attributes of the op that does by a handle what a node does by reference."""
    attrs = {**node.attrs, "dtype": node.attrs.get("T")}
    return registry.applicable_attrs(_by_handle(node), attrs)
