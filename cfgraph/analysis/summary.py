"""Summary of a graph: its counts, inputs, outputs, initializers, and the next command to run."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated

from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.analysis.feeds_and_fetches import (
    MAX_LISTED_FEEDS,
    describe_type,
    feed_option,
    format_type,
    is_input,
    must_be_fed,
)
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.resource_handles import is_variable
from cfgraph.analysis.verify.function_rules import functions_in_attrs
from cfgraph.analysis.verify.verify import structural_errors
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.function_graph import OutputPorts
from cfgraph.ir.functions import BodyNode, Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.signature import ArgDef
from cfgraph.ir.traversal import ancestors, dependents, downstream, is_transfer, unsent_recvs
from cfgraph.ops.families.functional import FunctionalOp
from cfgraph.ops.families.resource_variables import ReadVariableOp, VarIsInitializedOp
from cfgraph.ops.families.variables import IsVariableInitialized
from cfgraph.ops.opdef.op import is_a, lookup, role_of, strip_identities
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.reports import Column, Count, Keywords, Positive, Record


def _io_nodes(graph: Graph) -> set[Node]:
    """The nodes that read or write files, directly or in functions, and everything downstream."""
    touching = _io_functions(graph)
    return set(downstream(node for node in graph if _does_io(node, touching)))


def _io_functions(graph: Graph) -> set[str]:
    """The functions that read or write files, directly or through calls."""
    bodies = {name: function.definition.nodes for name, function in graph.functions.items()}
    functions: set[str] = set()
    while True:
        new = {
            name
            for name, nodes in bodies.items()
            if name not in functions and any(_does_io(node, functions) for node in nodes)
        }
        if not new:
            return functions
        functions |= new


def _does_io(node: Node | BodyNode, functions: Iterable[str]) -> bool:
    op = lookup(node.op)
    if op is not None and op.effects.does_io:
        return True
    if op is not None and not any("func" in attr.kind for attr in op.parsed().attrs.values()):
        return False
    called = {node.op, *(func.name for _, func in functions_in_attrs(node.attrs))}
    return not called.isdisjoint(functions)


def initializers(
    graph: Graph, resources: Collection[Node], unrunnable: Collection[Node] = ()
) -> list[Node]:
    """The first initializer, in graph order, of each resource.

    Initializers that need a feed or are `unrunnable` are skipped; a node that waits for all of
    them, such as `init`, replaces them.
    """
    every = list(_initializer_of(graph, resources, unrunnable).values())
    group = _group_node(graph, every) if every else None
    return every if group is None else [group]


def _initializer_of(
    graph: Graph, resources: Collection[Node], unrunnable: Collection[Node]
) -> dict[Node, Node]:
    """The first initializer of each resource that has one."""
    effects, known = EffectAnalysis(), set(resources)
    initializer_of: dict[Node, Node] = {}
    for node in graph:
        op = lookup(node.op)
        if op is None or not op.effects.initializes or not node.inputs or node in unrunnable:
            continue
        resource = effects.origin(node.inputs[0]).node
        if resource in known and resource not in initializer_of and _needs_no_feed(graph, node):
            initializer_of[resource] = node
    return initializer_of


def _group_node(graph: Graph, nodes: Collection[Node]) -> Node | None:
    """A node without inputs that waits for all of the nodes and needs no feed."""
    for node in graph:
        waits = not node.inputs and set(node.controls).issuperset(nodes)
        # one assignment may also be part of a step
        if waits and len(nodes) == 1:
            waits = all(map(_assigns, node.controls))
        if waits and _needs_no_feed(graph, node):
            return node
    return None


def _needs_no_feed(graph: Graph, node: Node) -> bool:
    return not any(must_be_fed(ancestor) for ancestor in ancestors(graph, [node]))


_OPAQUE = ("resource", "variant")
_UNRUNNABLE = ("unknown", "no kernel")


class Endpoint(Record):
    """An input or output: its type as `float32[?,4]`, and its default value."""

    name: Annotated[str, Column(style="cyan", scoped=True)]
    type: str
    default: Annotated[
        str | None,
        Column(style="dim", optional=True, cell=lambda value: value and f"{value} unless fed"),
    ] = None


class FrameSummary(Record):
    """A loop: its parallel_iterations, its LoopCond, and its counts."""

    name: str
    path: str
    depth: Count
    nodes: Count
    parallel_iterations: Count
    variables: Count
    invariants: Count
    predicate: str | None


class FunctionalLoopSummary(Record):
    """A loop that calls functions: its node, and the function that contains it, if any."""

    name: Annotated[str, Column(title="loop", style="cyan", scoped=True)]
    function: Annotated[str | None, Column(title="inside function", style="dim", optional=True)]
    op: str
    variables: Count
    parallel_iterations: Annotated[Positive, Column(title="in flight")]
    body: str
    condition: str | None


class LibraryFunctionSummary(Record):
    """A function of the library and its signature."""

    name: Annotated[str, Column(title="function", style="cyan")]
    signature: str
    nodes: Count


class Summary(Record):
    """Counts of a graph, and the names to use with other commands, in a fixed order."""

    nodes: Count  #: How many, in the summary.
    edges: Count
    control_edges: Count
    producer: int
    constant_bytes: Annotated[int, Keywords(type=["integer", "string"])]
    ops: Mapping[str, Count]
    unrunnable_ops: tuple[str, ...]
    devices: Mapping[str, Count]
    frames: tuple[FrameSummary, ...]
    #: Loops that call functions, in the graph and in its functions.
    functional_loops: tuple[FunctionalLoopSummary, ...]
    faults: Count
    functions: tuple[LibraryFunctionSummary, ...]
    inputs: tuple[Endpoint, ...]
    outputs: tuple[Endpoint, ...]
    targets: tuple[str, ...]  #: Nodes to run for their effect.


def summarize(graph: Graph, graph_frames: Frames | None = None) -> Summary:
    """Summarize a graph; its inputs and outputs are a guess."""
    graph_frames = frames(graph) if graph_frames is None else graph_frames
    ops = Counter(node.op for node in graph)
    return Summary(
        nodes=len(graph),
        edges=sum(len(node.inputs) for node in graph),
        control_edges=sum(len(node.controls) for node in graph),
        producer=graph.versions.producer,
        constant_bytes=sum(_constant_bytes(node) for node in graph),
        ops=_by_count(ops),
        unrunnable_ops=tuple(op for op in sorted(ops) if op_support(graph, op) in _UNRUNNABLE),
        devices=_by_count(Counter(node.device for node in graph)),
        frames=tuple(_frame(frame) for frame in _depth_first(graph_frames)),
        functional_loops=tuple(_functional_loops(graph)),
        faults=len(graph_frames.faults),
        functions=tuple(_function(graph.functions[name]) for name in sorted(graph.functions)),
        inputs=tuple(_input(graph, node) for node in graph if is_input(node)),
        outputs=tuple(_outputs_of(graph, graph_frames)),
        targets=tuple(effect_targets(graph, graph_frames)),
    )


def _outputs_of(graph: Graph, graph_frames: Frames) -> Iterator[Endpoint]:
    """The likely outputs, results of a function first; values of variables, then unused loop
    results, come last. Tests of variables are none if there are others.
    """
    shapes = StaticShapes({}, {}, {}) if structural_errors(graph) else infer_shapes(graph)
    every = sinks(graph, graph_frames)
    tensors = [tensor for tensor in every if not _tests_variable(tensor.node)] or every
    results = {*function_results(tensors)}

    def order(tensor: Output) -> tuple[bool, bool, bool]:
        is_exit = role_of(tensor.node) is Role.EXIT
        return tensor not in results, is_exit, _is_variable_value(tensor)

    for tensor in sorted(tensors, key=order):
        yield Endpoint(tensor.name, format_type(tensor.dtype, shapes[tensor]))


def sinks(graph: Graph, graph_frames: Frames | None = None) -> list[Output]:
    """The outputs, outside loops, of nodes without readers, in graph order."""
    graph_frames = frames(graph) if graph_frames is None else graph_frames
    ports = OutputPorts(graph.functions)
    return [
        tensor
        for node in graph
        if not node.uses
        and not is_input(node)
        and graph_frames.of_outputs.get(node) is graph_frames.root
        for tensor in node_outputs(node, ports)
    ]


def function_results(tensors: list[Output]) -> list[Output]:
    """The results of a tf.function, or all tensors if none is one.

    In the graph of a function, unread outputs of other nodes are by-products.
    """
    return [tensor for tensor in tensors if _FUNCTION_RESULT.fullmatch(tensor.name)] or tensors


def without_io_nodes(graph: Graph, tensors: list[Output]) -> list[Output]:
    """The tensors that do not depend on files, or all if there are no such tensors."""
    files = _io_nodes(graph)
    return [tensor for tensor in tensors if tensor.node not in files] or tensors


def effect_targets(graph: Graph, graph_frames: Frames) -> Iterator[str]:
    """Nodes to run for their effect: without readers and outputs.

    A Send is excluded: it runs because its Recv is needed.
    """
    ports = OutputPorts(graph.functions)
    for node in graph:
        if (
            node.uses
            or graph_frames.of.get(node) is not graph_frames.root
            or ports.count(node) != 0
        ):
            continue
        if not is_transfer(node):
            yield node.name


def node_outputs(node: Node, ports: OutputPorts) -> list[Output]:
    """The printable outputs of a node; `ports` knows the functions of its graph."""
    count = ports.count(node)
    outputs = [node.output(port) for port in range(1 if count is None else count)]
    types = {output: ports.dtype(output) for output in outputs}
    return [output for output, dtype in types.items() if dtype is None or dtype.kind not in _OPAQUE]


def next_command(graph: Graph, path: str, summary: Summary, *, restored: bool = False) -> str:
    """The suggested next command: a run of the graph, or a check that explains why it cannot run.

    `restored` variables need no initializer; variables without one are restored from a path.
    """
    path = f"./{path}" if path.startswith("-") and path != "-" else path
    if summary.faults or structural_errors(graph):
        return shlex.join(["cfgraph", "check", path])
    tensors = [graph.tensor(endpoint.name) for endpoint in summary.outputs]
    unrunnable = [node for node in graph if node.op in summary.unrunnable_ops]
    stuck = dependents(graph, [*unrunnable, *unsent_recvs(graph)])
    tensors = without_io_nodes(graph, [tensor for tensor in tensors if tensor.node not in stuck])
    if not tensors:
        return shlex.join(["cfgraph", "check", path])
    fetched = [tensor for tensor in tensors if role_of(tensor.node) is not Role.EXIT]
    fetched = [tensor for tensor in fetched if not _assigns(tensor.node)] or fetched
    fetched = [tensor for tensor in fetched if not _is_variable_value(tensor)] or fetched
    fetched = _by_ancestor_count(graph, function_results(fetched))[:_MAX_FETCHES]
    needed = ancestors(graph, [tensor.node for tensor in fetched or tensors])
    fed = [node.output() for node in needed if must_be_fed(node)]
    feeds = [feed_option(graph, tensor) for tensor in fed]
    if len(feeds) > MAX_LISTED_FEEDS:
        feeds = ["--feeds FILE.npz"]
    if not fetched and stuck:
        fetched = tensors[:_MAX_FETCHES]
    fetches = [f"--fetch {shlex.quote(tensor.name)}" for tensor in fetched]
    first = [] if restored else initializers(graph, needed, stuck)
    inits = [f"--init {shlex.quote(node.name)}" for node in first]
    variables = ["--variables PATH"] * (not restored and _needs_values(graph, needed, stuck))
    return " ".join([shlex.join(["cfgraph", "run", path]), *variables, *inits, *feeds, *fetches])


def _needs_values(graph: Graph, needed: Collection[Node], stuck: Collection[Node]) -> bool:
    """True if a run reads a variable that neither it nor an initializer assigns."""
    variables = [node for node in needed if is_variable(node)]
    initialized = _initializer_of(graph, variables, stuck) if variables else {}
    running = set(needed)
    return any(
        node not in initialized
        and not any(use.node in running and _assigns(use.node) for use in node.uses)
        for node in variables
    )


_MAX_FETCHES = 3
_FUNCTION_RESULT = re.compile(r"Identity(_\d+)?:0")  # of a tf.function, as TensorFlow names them
_MAX_WEIGHED = 1_000_000  # bound on the nodes to visit


def _assigns(node: Node) -> bool:
    """True for a node that outputs a variable that it has just assigned."""
    op = lookup(node.op)
    return op is not None and op.effects.initializes


def _is_variable_value(tensor: Output) -> bool:
    """True for a variable, and for a tensor that only reads one."""
    node = strip_identities(tensor).node
    return is_variable(node) or is_a(node, ReadVariableOp)


def _tests_variable(node: Node) -> bool:
    """True for a test of a variable, which TensorFlow adds to each one."""
    return is_a(node, VarIsInitializedOp, IsVariableInitialized)


def _by_ancestor_count(graph: Graph, tensors: list[Output]) -> list[Output]:
    """Tensors ordered by decreasing number of ancestors, so that a loss precedes a counter."""
    sources = list(dict.fromkeys(tensor.node for tensor in tensors))
    if len(sources) * len(graph) > _MAX_WEIGHED:
        depths = _depths(graph)
        return sorted(tensors, key=lambda tensor: -depths[tensor.node])
    ancestor_counts = {node: len(ancestors(graph, [node])) for node in sources}
    return sorted(tensors, key=lambda tensor: -ancestor_counts[tensor.node])


def _depths(graph: Graph) -> dict[Node, int]:
    """The length of the longest path to each node, without back edges."""
    depths: dict[Node, int] = {}
    for node in frames(graph).order:
        sources = node.predecessors
        depths[node] = 1 + max((depths.get(source, 0) for source in sources), default=0)
    return depths


def op_support(graph: Graph, op: str) -> str:
    """Support for an op in a run: `` with a kernel, `lowered`, or the reason why it cannot run."""
    definition = lookup(op)
    if op in graph.functions or (definition and issubclass(definition, FunctionalOp)):
        return "lowered"
    if definition is None:
        return "unknown"
    return "" if definition.compilation.runnable else "no kernel"


def _by_count(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def _constant_bytes(node: Node) -> int:
    return sum(_bytes(value) for value in node.attrs.values() if isinstance(value, TensorValue))


def _bytes(tensor: TensorValue) -> int:
    elements = tensor.shape.elements
    if elements is None or tensor.dtype.is_object:
        return 0
    try:
        return int(elements * tensor.dtype.numpy.itemsize)
    except TypeError:
        return 0


def _depth_first(graph_frames: Frames) -> list[Frame]:
    """The frames in depth-first order, without the root."""
    children: dict[Frame | None, list[Frame]] = {}
    for frame in graph_frames.all:
        children.setdefault(frame.parent, []).append(frame)
    ordered, stack = [], list(reversed(children.get(graph_frames.root, [])))
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


def _functional_loops(graph: Graph) -> Iterator[FunctionalLoopSummary]:
    """The functional loops of the graph, then of its functions by name."""
    bodies: list[tuple[str | None, Iterable[Node | BodyNode]]] = [(None, graph)]
    for name in sorted(graph.functions):
        bodies.append((name, graph.functions[name].definition.nodes))
    for function, nodes in bodies:
        for node in nodes:
            op = lookup(node.op)
            if op is not None and op.calls.is_loop:
                yield _functional_loop(node, function)


_DEFAULT_PARALLEL_ITERATIONS = 10


def _functional_loop(node: Node | BodyNode, function: str | None) -> FunctionalLoopSummary:
    called = dict(functions_in_attrs(node.attrs))
    types, parallel = node.attrs.get("T"), node.attrs.get("parallel_iterations")
    condition = called.get("cond")
    return FunctionalLoopSummary(
        node.name,
        function,
        node.op,
        len(types) if isinstance(types, list | tuple) else 0,
        parallel if isinstance(parallel, int) and parallel > 0 else _DEFAULT_PARALLEL_ITERATIONS,
        called["body"].name if "body" in called else "?",
        condition.name if condition else None,
    )


def _function(function: Function) -> LibraryFunctionSummary:
    definition = function.definition
    inputs = ", ".join(_argument(item) for item in definition.inputs)
    outputs = ", ".join(_argument(item) for item in definition.outputs)
    return LibraryFunctionSummary(
        function.name, f"({inputs}) -> ({outputs})", len(definition.nodes)
    )


def _argument(item: ArgDef) -> str:
    kind = str(item.dtype) if item.dtype else str(item.type_attr)
    kind = f"Ref({kind})" if item.is_ref else kind
    return f"{item.name}: {f'{item.count}*' if item.count else ''}{kind}"


def _input(graph: Graph, node: Node) -> Endpoint:
    item = node.output()
    default = None if must_be_fed(node) else _value(node.inputs[0])
    return Endpoint(item.name, describe_type(graph, item), default)


def _value(item: Output) -> str:
    """The value of a small constant, otherwise the name of the tensor."""
    value = item.node.attrs.get("value")
    small = isinstance(value, TensorValue) and value.shape.dims == () and not value.dtype.is_object
    return str(value.array.item()) if small and isinstance(value, TensorValue) else item.name
