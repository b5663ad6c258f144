"""What a graph is, in numbers and names: what `show` prints of it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from cfgraph.analysis.files import of_files
from cfgraph.analysis.frames import Frame, Frames, frames
from cfgraph.analysis.initializers import initializers
from cfgraph.analysis.inputs import described, feed_option, is_input, must_be_fed, type_text
from cfgraph.analysis.needed import needed, reached
from cfgraph.analysis.transfers import is_transfer
from cfgraph.ir import registry
from cfgraph.ir.attrs import Tensor
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.signature import Arg
from cfgraph.ir.walk import Roles
from cfgraph.ops.functional import Functional
from cfgraph.ops.op import lookup, role
from cfgraph.ops.shape_inference import infer_shapes

_OPAQUE = ("resource", "variant")
_CANNOT = ("unknown", "no kernel")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A tensor that comes in or goes out: its type as `float32[?,4]`, and its value if unfed."""

    name: str
    type: str
    default: str | None = None


@dataclass(frozen=True, slots=True)
class FrameSummary:
    """One loop: how many of its iterations may run at once, and what drives it."""

    name: str
    path: str
    depth: int
    nodes: int
    parallel_iterations: int
    variables: int
    invariants: int
    predicate: str | None


@dataclass(frozen=True, slots=True)
class FunctionSummary:
    """One function of the library, with its signature."""

    name: str
    signature: str
    nodes: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts, and the names that a person needs to go on; all in a fixed order."""

    nodes: int
    edges: int
    control_edges: int
    producer: int
    constant_bytes: int
    ops: tuple[tuple[str, int], ...]
    unrunnable_ops: tuple[str, ...]
    devices: tuple[tuple[str, int], ...]
    frames: tuple[FrameSummary, ...]
    faults: int
    functions: tuple[FunctionSummary, ...]
    inputs: tuple[Endpoint, ...]
    outputs: tuple[Endpoint, ...]
    targets: tuple[str, ...]


def summarize(graph: Graph, found: Frames | None = None) -> Summary:
    """Count what is in a graph, and guess what goes in and comes out."""
    found = frames(graph) if found is None else found
    ops = Counter(node.op for node in graph)
    return Summary(
        nodes=len(graph),
        edges=sum(len(node.inputs) for node in graph),
        control_edges=sum(len(node.controls) for node in graph),
        producer=graph.versions.producer,
        constant_bytes=sum(_constant_bytes(node) for node in graph),
        ops=_by_count(ops),
        unrunnable_ops=tuple(op for op in sorted(ops) if support(graph, op) in _CANNOT),
        devices=_by_count(Counter(node.device for node in graph)),
        frames=tuple(_frame(frame) for frame in _as_tree(found)),
        faults=len(found.faults),
        functions=tuple(_function(graph.functions[name]) for name in sorted(graph.functions)),
        inputs=tuple(_input(graph, node) for node in graph if is_input(node)),
        outputs=tuple(_outputs_of(graph, found)),
        targets=tuple(run_for_effect(graph, found)),
    )


def _outputs_of(graph: Graph, found: Frames) -> Iterator[Endpoint]:
    """The likely outputs: values that leave a loop unused stand behind the others."""
    shapes = infer_shapes(graph)
    items = sinks(graph, found)
    for item in sorted(items, key=lambda item: role(item.node) == "exit"):
        yield Endpoint(item.name, type_text(item.dtype, shapes[item]))


def sinks(graph: Graph, found: Frames | None = None) -> list[Output]:
    """The outputs in no loop of nodes that nothing reads, in graph order."""
    found = frames(graph) if found is None else found
    return [
        item
        for node in graph
        if not node.uses and not is_input(node) and found.of_outputs.get(node) is found.root
        for item in node_outputs(node)
    ]


def not_of_files(graph: Graph, items: list[Output]) -> list[Output]:
    """Tensors but for those that come of reading or writing files, if any other is there."""
    files = of_files(graph)
    return [item for item in items if item.node not in files] or items


def run_for_effect(graph: Graph, found: Frames) -> Iterator[str]:
    """Nodes that are run for their effect: nothing waits for them, and they return nothing.

    A Send is none: it runs because its Recv is needed.
    """
    roles = Roles()
    for node in graph:
        if node.uses or found.of.get(node) is not found.root or registry.output_count(node) != 0:
            continue
        if not is_transfer(node, roles):
            yield node.name


def node_outputs(node: Node) -> list[Output]:
    """The outputs of a node whose values can be shown."""
    count = registry.output_count(node)
    ports = [node.output(port) for port in range(1 if count is None else count)]
    return [item for item in ports if item.dtype is None or item.dtype.kind not in _OPAQUE]


def next_command(graph: Graph, path: str, summary: Summary, *, restored: bool = False) -> str:
    """The command line to type next: one that runs the graph, or else one that says why not.

    Nothing initializes variables that are `restored` before.
    """
    path = f"./{path}" if path.startswith("-") and path != "-" else path
    items = [graph.tensor(item.name) for item in summary.outputs]
    stuck = reached(graph, [node for node in graph if node.op in summary.unrunnable_ops])
    items = not_of_files(graph, [item for item in items if item.node not in stuck])
    if summary.faults or not items:
        return shlex.join(["cfgraph", "check", path])
    fetched = [item for item in items if role(item.node) != "exit"]
    fetched = [item for item in fetched if not _assigns(item.node)] or fetched
    fetched = _most_made(graph, fetched)[:_MAX_FETCHES]
    wanted = needed(graph, [item.node for item in fetched or items])
    feeds = [feed_option(graph, node.output()) for node in wanted if must_be_fed(node)]
    if not fetched and stuck:
        fetched = items[:_MAX_FETCHES]
    fetches = [f"--fetch {shlex.quote(item.name)}" for item in fetched]
    first = [] if restored else initializers(graph, wanted, stuck)
    inits = [f"--init {shlex.quote(node.name)}" for node in first]
    return " ".join([shlex.join(["cfgraph", "run", path]), *inits, *feeds, *fetches])


_MAX_FETCHES = 3
_MAX_WEIGHED = 1_000_000  # nodes to visit


def _assigns(node: Node) -> bool:
    """True for a node whose output is a variable that it has just written to."""
    op = lookup(node.op)
    return op is not None and op.initializes


def _most_made(graph: Graph, items: list[Output]) -> list[Output]:
    """First what takes the most nodes: a loss, its gradients, before a counter or a variable."""
    makers = list(dict.fromkeys(item.node for item in items))
    if len(makers) * len(graph) > _MAX_WEIGHED:
        return items
    made_of = {node: len(needed(graph, [node])) for node in makers}
    return sorted(items, key=lambda item: -made_of[item.node])


def support(graph: Graph, op: str) -> str:
    """What becomes of an op in a run: `` where it has a kernel, else `lowered` or why it cannot."""
    definition = lookup(op)
    if op in graph.functions or (definition and issubclass(definition, Functional)):
        return "lowered"
    if definition is None:
        return "unknown"
    return "" if definition.runnable else "no kernel"


def _by_count(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _constant_bytes(node: Node) -> int:
    return sum(_bytes(value) for value in node.attrs.values() if isinstance(value, Tensor))


def _bytes(tensor: Tensor) -> int:
    elements = tensor.shape.elements
    if elements is None or tensor.dtype.is_object:
        return 0
    try:
        return int(elements * tensor.dtype.numpy.itemsize)
    except TypeError:
        return 0


def _as_tree(found: Frames) -> list[Frame]:
    """The frames but the root, each before its own children, these in graph order."""
    children: dict[Frame | None, list[Frame]] = {}
    for frame in found.all:
        children.setdefault(frame.parent, []).append(frame)
    ordered, stack = [], list(reversed(children.get(found.root, [])))
    while stack:
        frame = stack.pop()
        ordered.append(frame)
        stack.extend(reversed(children.get(frame, [])))
    return ordered


def _frame(frame: Frame) -> FrameSummary:
    invariants = len(frame.invariants)
    conditions = [node.inputs[0].name for node in frame.loop_conds if node.inputs]
    return FrameSummary(
        frame.name,
        frame.path,
        frame.depth,
        len(frame.nodes),
        frame.parallel_iterations,
        len(frame.enters) - invariants,
        invariants,
        conditions[0] if len(conditions) == 1 else None,
    )


def _function(function: Function) -> FunctionSummary:
    definition = function.definition
    inputs = ", ".join(_argument(item) for item in definition.inputs)
    outputs = ", ".join(_argument(item) for item in definition.outputs)
    return FunctionSummary(function.name, f"({inputs}) -> ({outputs})", len(definition.nodes))


def _argument(item: Arg) -> str:
    kind = str(item.dtype) if item.dtype else str(item.type_attr)
    kind = f"Ref({kind})" if item.is_ref else kind
    return f"{item.name}: {f'{item.count}*' if item.count else ''}{kind}"


def _input(graph: Graph, node: Node) -> Endpoint:
    item = node.output()
    default = None if must_be_fed(node) else _value(node.inputs[0])
    return Endpoint(item.name, described(graph, item), default)


def _value(item: Output) -> str:
    """The value of a small constant, or the name of the tensor."""
    value = item.node.attrs.get("value")
    small = isinstance(value, Tensor) and value.shape.dims == () and not value.dtype.is_object
    return str(value.array.item()) if small and isinstance(value, Tensor) else item.name
