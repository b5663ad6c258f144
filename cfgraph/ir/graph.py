"""The graph: nodes by name and their edges. Only this module edits edges."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir import registry
from cfgraph.ir.colocation import COLOCATION_ATTR, renamed_groups
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.load_faults import LoadFaults, name_taken_error, unknown_input_error
from cfgraph.ir.names import NODE_NAME, known_names_hint, require_names
from cfgraph.ir.node import CONTROL, Node, Output, Use, make_pair, node_name, split_tensor_name
from cfgraph.limits import check_deadline, reserve
from cfgraph.rich_display import Pictured

if TYPE_CHECKING:
    from cfgraph.ir.functions import Function, RegisteredGradient

__all__ = [
    "CONTROL",
    "Graph",
    "Node",
    "NodeRecord",
    "Output",
    "Use",
    "Versions",
    "require_graph",
]


_T = TypeVar("_T")

_MAX_HINTS: Final = 3  # fuzzy matching is slow, so only the first faults get a hint
# approximate memory of a node and of an edge
_NODE_BYTES: Final = 500
_EDGE_BYTES: Final = 250
_CHECK_INTERVAL: Final = 1024
# the objects of fewer nodes are collected in less than a millisecond
_MIN_PAUSED_NODES: Final = 256

# name, op, inputs as written in the file, device, attrs, origin
NodeRecord = tuple[str, str, Sequence[str], str, dict[str, Any], Any]


class Graph(Pictured):
    """Nodes by name, in order, with the function library and the versions of the file.

    `edits` counts changes of nodes and edges, so that derived data can detect that it is stale;
    `moves` counts the changes of devices among them, which few data depend on. Functions are
    replaced, never modified, so identity shows whether data derived from the library is stale.
    `named_tensors` are those of a SavedModel's signatures, by their names there, for hints alone.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.functions: dict[str, Function] = {}
        self.gradient_functions: dict[str, str] = {}
        self.registered_gradients: Mapping[str, RegisteredGradient] = {}
        self.versions: Versions = Versions()
        self.origin: Any = None
        self.named_tensors: Mapping[str, Sequence[str]] = {}
        self.edits = 0
        self.moves = 0
        self.name_suffixes: dict[str, int] = {}

    # -- reading ---------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        counts = {"node": len(self), "op": len(self.ops), "function": len(self.functions)}
        descriptions = (f"{count} {what}{'s' * (count != 1)}" for what, count in counts.items())
        return f"<Graph of {', '.join(descriptions)}>"

    def __contains__(self, name: object) -> bool:
        return name in self.nodes

    @property
    def ops(self) -> set[str]:
        """The ops of all nodes."""
        return {node.op for node in self.nodes.values()}

    def __getitem__(self, name: str) -> Node:
        node = self.nodes.get(name)
        if node is None:
            require_names([name])
            message = f"no node {name!r} in the graph"
            hint = self._signature_hint(name) or known_names_hint(name, self.nodes)
            raise UsageError(message, hint=hint)
        return node

    def _signature_hint(self, name: str) -> str | None:
        tensors = [item for item in self.named_tensors.get(name, ()) if node_name(item) in self]
        written = " or ".join(map(repr, tensors))
        return f"write {written}, which is {name!r} in a signature" if tensors else None

    def tensor(self, name: str) -> Output:
        """The output named `name` or `name:port`.

        Raises UsageError if there is no such node or output.
        """
        try:
            base, port = split_tensor_name(name)
        except (AttributeError, TypeError):
            require_names([name])
            raise
        if port is None:
            message = f"{name!r} names an operation, not a tensor"
            raise UsageError(message, hint=f"write {base!r} or {base + ':0'!r}")
        node = self[base]
        count = node.output_count
        if count is not None and port >= count:
            if count == 0:
                message = f"{base!r} ({node.op}) has no outputs"
                raise UsageError(message, node=base, hint=f"run it as a target: ^{base}")
            outputs = f"{count} output{'s' * (count > 1)}"
            message = f"{base!r} ({node.op}) has {outputs}, so output {port} does not exist"
            raise UsageError(message, node=base)
        return Output(node, port)

    def paused_gc(self) -> AbstractContextManager[None]:
        """A pause of the garbage collector, while many objects are created for a large graph."""
        is_small = len(self) < _MIN_PAUSED_NODES and not self.functions
        return nullcontext() if is_small else paused_gc(nodes=len(self))

    def clear(self) -> None:
        """Remove all nodes and edges of a graph that is no longer used.

        Readers and sources refer to each other: without this they wait for the garbage collector.
        """
        for node in self.nodes.values():
            node.inputs = node.controls = ()
            node.uses = ()
        self.nodes.clear()
        self.edits += 1

    # -- writing ---------------------------------------------------------------------------------

    def add(
        self,
        op: str,
        *inputs: Output | Node,
        name: str | None = None,
        controls: Iterable[Node] = (),
        device: str = "",
        attrs: Mapping[str, Any] | None = None,
        **more_attrs: Any,
    ) -> Node:
        """Add a node; type and count attributes are inferred from its inputs.

        `name` is made unique. Raises InvalidInput if inputs or attributes do not match the op.
        """
        ports = tuple([_output(item) for item in inputs])
        all_attrs = {**attrs, **more_attrs} if attrs else more_attrs
        name = self.unique_name(name or op)
        return self.create(
            name, op, ports, controls, registry.infer_attrs(name, op, ports, all_attrs), device
        )

    def insert_after(
        self,
        tensor: Output | Node,
        op: str,
        *more_inputs: Output | Node,
        name: str | None = None,
        controls: Iterable[Node] = (),
        device: str | None = None,
        except_: Iterable[Node] = (),
        attrs: Mapping[str, Any] | None = None,
        **more_attrs: Any,
    ) -> Node:
        """Add a node that reads `tensor`, and make all other readers read its first output.

        The readers in `except_` stay, as do fetches of the tensor. The default name is that of the
        source with the op, the default device that of the source. Raises InvalidInput like `add`.
        """
        source = _output(tensor)
        node = self.add(
            op,
            source,
            *more_inputs,
            name=name or f"{source.node.name}/{op}",
            controls=controls,
            device=source.node.device if device is None else device,
            attrs={**attrs, **more_attrs} if attrs else more_attrs,
        )
        self.replace_uses(source, node, except_=(node, *except_))
        return node

    def create(
        self,
        name: str,
        op: str,
        inputs: Iterable[Output] = (),
        controls: Iterable[Node] = (),
        attrs: Mapping[str, Any] | None = None,
        device: str = "",
    ) -> Node:
        """Add a node with exactly this name and these attributes. Raises InvalidInput if the name
        is taken.
        """
        if name in self.nodes:
            raise name_taken_error(name)
        node = Node(name, op, {} if attrs is None else attrs, device)
        self.nodes[name] = node
        self.edits += 1
        if inputs:
            self.set_inputs(node, inputs)
        if controls:
            self.set_controls(node, controls)
        return node

    def add_copies(self, nodes: Iterable[Node]) -> dict[Node, Node]:
        """Add copies of nodes of another graph, which include all of their inputs.

        Returns the copy of each node. Attribute values are shared. Raises InvalidInput if a name is
        taken.
        """
        copies: dict[Node, Node] = {}
        for node in nodes:
            if node.name in self.nodes:
                raise name_taken_error(node.name)
            copy = copies[node] = Node(node.name, node.op, node.attrs, node.device)
            copy.origin = node.origin
            self.nodes[node.name] = copy
        for node, copy in copies.items():
            inputs = []
            for slot, (original, port) in enumerate(node.inputs):
                source = copies[original]
                inputs.append(make_pair(Output, (source, port)))
                source.add_use(make_pair(Use, (copy, slot)))
            copy.inputs = tuple(inputs)
            if node.controls:
                copy.controls = tuple([copies[control] for control in node.controls])
                for control in copy.controls:
                    control.add_use(make_pair(Use, (copy, CONTROL)))
        self.edits += 1
        return copies

    def absorb(self, other: Graph) -> None:
        """Move the nodes of another graph, which must not be used afterwards, into this one.

        Raises InvalidInput if a name is taken.
        """
        for node in other:
            if node.name in self.nodes:
                raise name_taken_error(node.name)
            self.nodes[node.name] = node
        self.edits += 1

    def load(self, records: Iterable[NodeRecord]) -> None:
        """Add nodes whose inputs are strings, in any order.

        Raises InvalidInput with one finding per fault if they do not form a graph.
        """
        faults = LoadFaults()
        texts = self._load_nodes(records, faults)
        edges = 0
        for number, (node, inputs) in enumerate(taken(texts)):
            edges += len(inputs)
            if not number % _CHECK_INTERVAL or len(inputs) > _CHECK_INTERVAL:
                check_deadline()
                reserve(edges * _EDGE_BYTES, f"the first {edges} edges of the graph")
            self._load_inputs(node, inputs, faults)
        self.edits += 1
        if faults.count:
            raise faults.error()

    def _load_nodes(
        self, records: Iterable[NodeRecord], faults: LoadFaults
    ) -> deque[tuple[Node, Sequence[str]]]:
        nodes, texts = self.nodes, deque[tuple[Node, Sequence[str]]]()
        for number, (name, op, inputs, device, attrs, origin) in enumerate(records, 1):
            reserve_nodes(number)
            node = Node(name, op, attrs, device)
            node.origin = origin
            if name in nodes:
                faults.add(name_taken_error, name)
                continue
            if not op:
                faults.add(InvalidInput, "the node has no op", node=name, code="CFG103")
            if not NODE_NAME(name):
                message = f"{name!r} is not a valid node name"
                faults.add(InvalidInput, message, node=name, code="CFG102")
            nodes[name] = node
            texts.append((node, inputs))
        return texts

    def _load_inputs(self, node: Node, texts: Sequence[str], faults: LoadFaults) -> None:
        nodes = self.nodes
        inputs: list[Output] = []
        controls: dict[Node, None] = {}
        for text in texts:
            source, port = nodes.get(text), 0
            if source is None:
                base, maybe = split_tensor_name(text)
                source, port = nodes.get(base), CONTROL if maybe is None else maybe
                if source is None:
                    near = nodes if faults.count < _MAX_HINTS else ()
                    faults.add(unknown_input_error, node, text, base, near)
                    continue
            if port == CONTROL:
                if source not in controls:
                    controls[source] = None
                    source.add_use(make_pair(Use, (node, CONTROL)))
                continue
            if controls:
                message = f"data input {text!r} comes after control inputs"
                faults.add(InvalidInput, message, node=node, code="CFG106")
            source.add_use(make_pair(Use, (node, len(inputs))))
            inputs.append(make_pair(Output, (source, port)))
        node.inputs = tuple(inputs)
        node.controls = tuple(controls)

    def connect(self, node: Node, inputs: Iterable[Output], controls: Iterable[Node]) -> None:
        """Set all input edges of a node."""
        self.set_inputs(node, inputs)
        if controls or node.controls:
            self.set_controls(node, controls)

    def set_inputs(self, node: Node, inputs: Iterable[Output]) -> None:
        """Replace all data inputs of a node."""
        sources = tuple(inputs)
        self.edits += 1
        for slot, old in enumerate(node.inputs):
            old.node.remove_use(make_pair(Use, (node, slot)))
        node.inputs = sources
        for slot, new in enumerate(sources):
            new[0].add_use(make_pair(Use, (node, slot)))

    def open_inputs(self, node: Node) -> None:
        """Make the inputs of a node a list until `close_inputs`: `set_input` is constant in it."""
        node.inputs = list(node.inputs)  # type: ignore[assignment]

    def close_inputs(self, node: Node) -> None:
        """Make the inputs of a node a tuple again."""
        node.inputs = tuple(node.inputs)

    def set_input(self, node: Node, slot: int, source: Output) -> None:
        """Replace one data input."""
        self._redirect(node, (slot,), source)

    def _redirect(self, node: Node, slots: Iterable[int], source: Output) -> None:
        """Make some data inputs of a node read `source`."""
        is_open = not isinstance(node.inputs, tuple)
        inputs: Any = node.inputs if is_open else list(node.inputs)
        for slot in slots:
            if not 0 <= slot < len(inputs):
                message = f"{node.name!r} has {len(inputs)} inputs, no input {slot}"
                raise IndexError(message)
            inputs[slot].node.remove_use(make_pair(Use, (node, slot)))
            inputs[slot] = source
            source.node.add_use(make_pair(Use, (node, slot)))
        self.edits += 1
        node.inputs = inputs if is_open else tuple(inputs)

    def set_controls(self, node: Node, controls: Iterable[Node]) -> None:
        """Replace all control inputs; duplicates collapse."""
        sources = tuple(dict.fromkeys(controls))
        self.edits += 1
        for old in node.controls:
            old.remove_use(make_pair(Use, (node, CONTROL)))
        node.controls = sources
        for new in sources:
            new.add_use(make_pair(Use, (node, CONTROL)))

    def add_control(self, node: Node, before: Node) -> None:
        """Make `node` wait for `before`."""
        use = Use(node, CONTROL)
        if use not in before.uses:
            self.edits += 1
            node.controls = (*node.controls, before)
            before.add_use(use)

    def remove_control(self, node: Node, before: Node) -> None:
        """Remove one control edge, if it is there."""
        use = Use(node, CONTROL)
        if use in before.uses:
            self.edits += 1
            node.controls = tuple(item for item in node.controls if item is not before)
            before.remove_use(use)

    def replace_uses(
        self, old: Output | Node, new: Output | Node, *, except_: Iterable[Node] = ()
    ) -> int:
        """Make every reader of `old` read `new`, but those in `except_`, such as the node of `new`.

        A node stands for its first output. Returns the number of inputs changed.
        """
        old, new, excepted = _output(old), _output(new), {*except_}
        slots: dict[Node, list[int]] = {}
        for node, slot in old.node.readers(old.port):
            if node not in excepted:
                slots.setdefault(node, []).append(slot)
        for node, mine in slots.items():
            self._redirect(node, mine, new)
        return sum(map(len, slots.values()))

    def set_attr(self, node: Node, key: str, value: Any) -> None:
        """Set one attribute. Raises InvalidInput for a value that the op does not accept."""
        attrs = registry.without_lists({key: value})
        registry.require_attrs(node.name, node.op, attrs)
        self.edits += 1
        node.attrs = {**node.attrs, **attrs}

    def set_op(self, node: Node, op: str, attrs: Mapping[str, Any] | None = None) -> None:
        """Change the op and attributes of a node; name, edges, and device stay.

        Without attributes, those stay that the new op has. Raises InvalidInput if its inputs do
        not match.
        """
        if attrs is None:
            known = registry.applicable_attrs(op, node.attrs)
            attrs = registry.infer_attrs(node.name, op, node.inputs, known)
        self.edits += 1
        node.op, node.attrs, node.origin = op, attrs, None

    def set_device(self, node: Node, device: str) -> None:
        """Set the requested device."""
        self.edits += 1
        self.moves += 1
        node.device = device

    def rename(self, node: Node, name: str) -> None:
        """Rename a node, also where others are colocated with it; its position in the order stays.

        Raises InvalidInput if the name is taken.
        """
        if name == node.name:
            return
        if name in self.nodes:
            raise name_taken_error(name)
        self.edits += 1
        renamed = {name if key == node.name else key: value for key, value in self.nodes.items()}
        self.nodes = renamed
        names = {node.name: name}
        for member in renamed.values():
            groups = member.attrs.get(COLOCATION_ATTR)
            moved = renamed_groups(groups, names.get)
            if moved != groups:
                self.set_attr(member, COLOCATION_ATTR, moved)
        node.name = name

    def reorder(self, nodes: Iterable[Node]) -> None:
        """Change the order of nodes; `nodes` must contain all of them."""
        self.edits += 1
        self.nodes = {node.name: node for node in nodes}

    def remove(self, *nodes: Node) -> None:
        """Remove nodes.

        Raises ValueError, and removes nothing, if a remaining node reads one of them or one of them
        is not in the graph.
        """
        going = dict.fromkeys(nodes)
        for node in going:
            if self.nodes.get(node.name) is not node:
                message = f"{node.name!r} is not in the graph"
                raise ValueError(message)
            for use in node.uses:
                if use.node not in going:
                    message = f"{node.name!r} is still read by {use.node.name!r}"
                    raise ValueError(message)
        for node in going:
            self.connect(node, (), ())
            del self.nodes[node.name]

    def remove_unread(
        self, nodes: Iterable[Node], is_removable: Callable[[Node], bool]
    ) -> list[Node]:
        """Remove removable nodes that nothing reads, and then those that only they read.

        Returns the removed nodes.
        """

        def is_unread(node: Node) -> bool:
            return not node.uses and self.nodes.get(node.name) is node and is_removable(node)

        removed: list[Node] = []
        todo = list(filter(is_unread, dict.fromkeys(nodes)))
        while todo:
            node = todo.pop()
            sources = dict.fromkeys(node.predecessors)
            self.remove(node)
            removed.append(node)
            todo += filter(is_unread, sources)
        return removed

    def unique_name(self, base: str) -> str:
        """A name not yet taken: `base`, or `base_1`, `base_2`, …"""
        if base not in self.nodes:
            return base
        number = self.name_suffixes.get(base, 0) + 1
        while f"{base}_{number}" in self.nodes:
            number += 1
        self.name_suffixes[base] = number
        return f"{base}_{number}"


def _output(item: Output | Node) -> Output:
    return item.output() if isinstance(item, Node) else item


def taken(items: deque[_T]) -> Iterator[_T]:
    """The items, each of which leaves the queue, so that its memory is free once it is used."""
    while items:
        yield items.popleft()


def reserve_nodes(number: int) -> None:
    """Check the limits of time and memory after each of many nodes that are read.

    Raises RunTimeout or ExecutionError.
    """
    if not number % _CHECK_INTERVAL:
        check_deadline()
        reserve(number * _NODE_BYTES, f"the first {number} nodes of the graph")


def require_graph(value: object) -> None:
    """Raise UsageError unless the value is a Graph, for example if it is a file name."""
    if not isinstance(value, Graph):
        message = f"expected a Graph, got {value!r}"
        has_graph = isinstance(getattr(value, "graph", None), Graph)
        hint = "use its attribute `graph`" if has_graph else None
        raise UsageError(message, hint=hint or "cfgraph.load(path) reads one from a file")


class Versions(NamedTuple):
    """Version of the producer that wrote a graph, and restrictions on its consumers."""

    producer: int = 0
    min_consumer: int = 0
    bad_consumers: tuple[int, ...] = ()
