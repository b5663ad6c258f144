"""Write a function body: copies of nodes, with an argument for each external tensor.

Used for the branches and bodies of functionalized regions. A control edge is copied if it orders
effects; all others only say when a node is live, and everything in a function is."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.colocation import without_groups
from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import function_from_nodes
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import UNKNOWN_SHAPE
from cfgraph.ir.traversal import ancestors, reachable, topological_order
from cfgraph.ops.families.constants import Const
from cfgraph.ops.opdef.op import Op, has_effect, is_a, lookup, makes_handle, may_write, role_of
from cfgraph.ops.opdef.random_streams import GRAPH, draws
from cfgraph.passes.node_copier import SourceCopier

# nodes that are left out of bodies, and may wait for effects
_OMITTED_ROLES: Final = (
    Role.SWITCH,
    Role.CONTROL_TRIGGER,
    Role.NEXT_ITERATION,
    Role.LOOP_COND,
)
# the tensor that another equals inside the body: for the output of a Switch, its data input
TensorMapping = Callable[[Output], Output]
# constants with at most as many elements are copied instead of being passed as arguments
MAX_CHEAP_ELEMENTS: Final = 16


def is_cheap_constant(node: Node) -> bool:
    """Return true for a constant that is copied instead of being passed as an argument."""
    value = node.attrs.get("value")
    if not isinstance(value, TensorValue) or not is_a(node, Const):
        return False
    elements = value.shape.elements
    return elements is not None and elements <= MAX_CHEAP_ELEMENTS


def is_text_of_check(node: Node) -> bool:
    """Return true for a cheap constant of type string that a check reads, for its message."""
    value = node.attrs.get("value")
    is_text = isinstance(value, TensorValue) and value.dtype.kind == "string"
    return is_text and is_cheap_constant(node) and any(_only_checks(use.node) for use in node.uses)


def _only_checks(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and op.effects.only_checks


def constant_texts(node: Node, op: type[Op]) -> Collection[int]:
    """Return the inputs of a check that are constant texts, which it reads only if it fails."""
    if not op.effects.only_checks:
        return ()
    return [slot for slot, tensor in enumerate(node.inputs) if is_text_of_check(tensor.node)]


def must_run_once(node: Node) -> bool:
    """Return true for a node that cannot be copied: it has effects, or draws random numbers."""
    op = lookup(node.op)
    return op is None or (op.effects.stateful and not makes_handle(node))


def ordered_nodes(inside: Collection[Node]) -> dict[Node, None]:
    """Return the nodes that run once, and the nodes inside that follow one of them, in order."""
    ordered: dict[Node, None] = {}
    if not any(map(must_run_once, inside)):
        return ordered
    for node in topological_order(inside).nodes:
        sources = node.predecessors
        if must_run_once(node) or any(source in ordered for source in sources):
            ordered[node] = None
    return ordered


def unread_effects(
    graph: Graph,
    nodes: Iterable[Node],
    is_inside: Callable[[Node], bool],
    roots: Iterable[Node],
    copied: Iterable[Node] = (),
) -> list[Node]:
    """Return the nodes outside that nodes of a region wait for, after effects, and no body reads.

    Bodies have neither control edges that say when a node is live nor predicates of Switches, and
    constants of their own in place of `copied`. What `roots` read is awaited anyway.
    """
    constants, roots = {*copied}, [*roots]

    def read_by(node: Node) -> list[Node]:
        inputs = node.inputs[:1] if role_of(node) is Role.SWITCH else node.inputs
        return [tensor.node for tensor in inputs] if is_inside(node) else []

    def omitted_by(node: Node) -> list[Node]:
        read = read_by(node)
        if len(read) == len(node.inputs) and not node.controls:
            return []
        inputs = {*read}
        return [each for each in node.predecessors if each not in inputs]

    omitted = dict.fromkeys(each for node in nodes for each in omitted_by(node))
    if not constants and omitted.keys() <= {*roots}:
        return []
    read = {node: None for node in reachable(roots, read_by) if node not in constants}
    unread = reachable(
        [*constants, *(node for node in omitted if node not in read)],
        lambda node: node.predecessors if is_inside(node) else (),
    )
    outer = [node for node in unread if node not in read and not is_inside(node)]
    if not outer:
        return []
    awaited = set(ancestors(graph, [node for node in read if not is_inside(node)]))
    return [
        node
        for node in outer
        if any(must_run_once(each) for each in ancestors(graph, [node]) if each not in awaited)
    ]


class FunctionBodyWriter(SourceCopier):
    """The body of one function as it is written; `mapping` replaces tensors before their copy.

    Control edges from nodes in `ordered` are copied.
    """

    def __init__(
        self,
        library: dict[str, Function],
        mapping: TensorMapping,
        ordered: Collection[Node] = (),
        *,
        keep_devices: bool = False,
    ) -> None:
        super().__init__(Graph(), mapping)
        self.graph.functions = library
        self.ordered = ordered
        self.keep_devices = keep_devices
        self.inputs: dict[str, Output] = {}

    def argument(self, name: str, dtype: DType, *tensors: Output) -> None:
        """Add an argument for tensors of equal value."""
        attrs = {"dtype": dtype, "shape": UNKNOWN_SHAPE}
        argument = self.graph.create(name, "Placeholder", attrs=attrs).output()
        self.inputs[name] = argument
        self.tensors.update(dict.fromkeys(tensors, argument))

    def constant(self, tensor: Output, source: Node) -> None:
        """Copy a constant into the body for a tensor."""
        self.tensors[tensor] = (self.copies.get(source) or self.clone(source)).output()

    def controls(self, node: Node) -> Collection[Node]:
        """Return the effects that a copy waits for."""
        switches = [tensor.node for tensor in node.inputs if role_of(tensor.node) is Role.SWITCH]
        return dict.fromkeys(self._earlier([*node.controls, *switches]))

    def _earlier(self, controls: Iterable[Node]) -> Iterator[Node]:
        """Yield the nodes whose effects a node with these control inputs waits for."""
        todo = list(controls)
        seen: set[Node] = set()
        for control in todo:
            if control in seen or control not in self.ordered:
                continue
            seen.add(control)
            if role_of(control) in _OMITTED_ROLES:
                todo += control.predecessors
            else:
                yield control

    @property
    def copied(self) -> Collection[Node]:
        """The nodes of which the body has a copy."""
        return self.copies.keys()

    @property
    def awaited_effects(self) -> list[Node]:
        """The nodes whose copies run even if no result needs them."""
        clones = self.copies.items()
        return [
            n for n, clone in clones if has_effect(clone) and (may_write(clone) or not clone.uses)
        ]

    def effects(self, nodes: Iterable[Node]) -> None:
        """Copy nodes with effects, and what they depend on."""
        for node in nodes:
            self.copy_with_sources(node)

    def clone(self, node: Node) -> Node:
        """Return the copy of a node, without inputs and colocation at first."""
        attrs = without_groups(node.attrs)
        if draws(node, self.graph.functions):
            attrs |= GRAPH.annotations(node)
        device = node.device if self.keep_devices else ""
        return self.copy(node, node.name, attrs, device)

    def function(self, name: str, outputs: Mapping[str, Output]) -> Function:
        """Return the function with these results, each from `value`.

        Its effects are its control outputs: what waits for the call waits for all of them. A result
        of a call in the body does not wait for the effects of that call.
        """
        returned = {tensor.node for tensor in outputs.values()}
        unread = [
            source
            for source, clone in self.copies.items()
            if is_cheap_constant(clone) and not clone.uses and clone not in returned
        ]
        for source in unread:
            self.graph.remove(self.copies.pop(source))
        used = {*self.inputs, *outputs}
        controls: dict[str, Node] = {}
        for number, source in enumerate(self.awaited_effects):
            label = f"effect_{number}"
            while label in used:
                label += "_"
            controls[label] = self.copies[source]
        return function_from_nodes(
            name, self.graph, self.inputs, outputs, controls, library=self.graph.functions
        )


def base_dtypes(tensors: Iterable[Output]) -> tuple[Any, ...]:
    """Return the dtypes of tensors without references, for an attribute of a call."""
    return tuple(tensor.dtype.base for tensor in tensors if tensor.dtype is not None)


_INVALID_CHARACTERS: Final = re.compile(r"[^a-z0-9_]+")


class ArgumentNames:
    """Unique argument names derived from node names."""

    def __init__(self, used: Iterable[str]) -> None:
        self._used = set(used)
        self._last_numbers: dict[str, int] = {}

    def new(self, tensor: Output, suffix: str = "") -> str:
        """Return an unused name derived from the node of a tensor."""
        base = _INVALID_CHARACTERS.sub("_", tensor.node.name.rpartition("/")[2].lower()).strip("_")
        base = base if base[:1].isalpha() else f"arg_{base}".rstrip("_")
        base = f"{base}_{suffix}" if suffix else base
        name, number = base, self._last_numbers.get(base, 0)
        while name in self._used:
            number += 1
            name = f"{base}_{number}"
        self._last_numbers[base] = number
        self._used.add(name)
        return name
