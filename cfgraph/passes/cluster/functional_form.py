"""Loops and conditionals that XLA compiles in the form of the file, without being lowered.

    x ─▶ While {cond, body} ─▶ y      becomes      x ─▶ XlaLaunch ─▶ y

The rules are those of `regions` for the calls that loops become again once they are lowered. A
graph in which a single loop or conditional breaks one is lowered as a whole: `regions` decides
about each of them, and has the reasons.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.dtypes import NUMERIC_KINDS, DType, bool_
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.library import select_implementation
from cfgraph.ir.registry import ROLES
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.constants import Const, Identity
from cfgraph.ops.families.control_flow import NoOp
from cfgraph.ops.opdef.function_bodies import (
    MAX_NESTED_CALLS,
    called_functions,
    loop_invariant_arguments,
    require_bounded,
)
from cfgraph.ops.opdef.op import Op, function_calls, has_effect, lookup, strip_identities
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.cluster.formation.cluster_plan import ClusterPlan
from cfgraph.passes.cluster.formation.compilable import ClusterConstraints, CompilationRules
from cfgraph.passes.cluster.regions import require_constant_arguments, require_invariant_shapes
from cfgraph.passes.functionalize.lists.tensor_lists import (
    list_readers,
    require_static_size,
    tensor_list_groups,
)
from cfgraph.passes.functionalize.report import RegionRejected, region_rejected

_KINDS: Final = ("while", "if", "call")
# beside numbers: handles of variables, and lists
_TRACED_KINDS: Final = frozenset((*NUMERIC_KINDS, "resource", "variant"))


def compiled_calls(
    graph: Graph, constraints: ClusterConstraints, instances: FunctionInstances
) -> dict[Node, int]:
    """Return the loops and conditionals of a graph and the nodes on lists, with their sizes.

    Loops and conditionals without effects become stateless ones, in place. `instances` are those of
    the graph's functions. Raises RegionRejected if one of the calls must be lowered, or if the
    graph contains primitives of control flow.
    """
    calls = [node for node in graph if _functional_kind(node)]
    if any(ROLES[op] or lookup(op) is None for op in graph.ops):
        raise region_rejected("form", "the graph has no functional form")
    if any(dtype.is_ref for node in graph for dtype in _output_types(node)):
        raise region_rejected("reference", "the graph has references")
    if not calls:
        return {}
    form = _FunctionalForm(instances)
    sizes = dict.fromkeys(_list_nodes(graph, constraints.fetched), 1)
    read = form.demanded((), constraints.fetched)
    form.require_harmless(constraints.needed or graph, read)
    shapes = infer_shapes(graph)
    for node in calls:
        is_numeric = all(dtype.kind in NUMERIC_KINDS for dtype in _output_types(node))
        if node in constraints.fed or (node in constraints.fetched and not is_numeric):
            raise region_rejected("fed", f"{node.name} is fed or fetched")
        sizes[node] = 1 + form.size(node, shapes, read.get(node, set()))
        if (op := form.fitting_op(node)) != node.op:
            graph.set_op(node, op, node.attrs)
    return sizes


def is_in_clusters(nodes: Collection[Node], plan: ClusterPlan) -> bool:
    """Return true if a plan has all nodes in clusters, and no list leaves one."""
    cluster_of = {node: number for number, body in enumerate(plan.bodies) for node in body.members}
    return all(
        node in cluster_of
        and all(cluster_of.get(reader) == cluster_of[node] for reader in list_readers(node))
        for node in nodes
    )


def _functional_kind(node: Node) -> str:
    """The kind of a node that calls functions, other than as a cluster; empty for others."""
    kind = function_calls(node.op).kind
    return "" if kind in ("combine", "launch") else kind


def _output_types(node: Node) -> Sequence[DType]:
    return node.output_types or ()


def _list_nodes(graph: Graph, fetched: Collection[Node] = ()) -> Iterator[Node]:
    """Yield the nodes that handle lists, except calls and arguments."""
    for group in tensor_list_groups(graph):
        require_static_size(group, None, fetched, traced=True)
        yield from (node for node in group if not (ROLES[node.op] or _functional_kind(node)))


class _FunctionalForm:
    """The functions that are compiled, each looked at once for the same shapes."""

    def __init__(self, instances: FunctionInstances) -> None:
        self.instances = instances
        self._bounded: set[FunctionGraph] = set()
        self._sizes: dict[tuple[FunctionGraph, tuple[Shape, ...], frozenset[int]], int] = {}
        self._demanded: dict[tuple[FunctionGraph, frozenset[int]], dict[Node, set[int]]] = {}

    def fitting_op(self, node: Node) -> str:
        """Return the op of a node, or the stateless one if its functions have no effects."""
        op = lookup(node.op)
        assert op is not None
        bodies = (f.needed().difference(f.arguments) for f in self._functions(node))
        inner = {lookup(name) for name in {each.op for body in bodies for each in body}}
        if not any(each is not None and each.effects.stateful for each in inner):
            bases = (base for base in op.__mro__ if issubclass(base, Op))
            return next(base.__name__ for base in bases if not base.effects.stateful)
        if not op.effects.stateful:
            raise region_rejected("effects", f"{node.name} has effects, and {node.op} has none")
        return node.op

    def demanded(self, results: Iterable[Output], nodes: Iterable[Node]) -> dict[Node, set[int]]:
        """Return what results and nodes depend on if it is lowered, with the results that are read.

        A lowered loop computes no variable that its condition, its effects, and results need not.
        """
        read: dict[Node, set[int]] = {}
        todo = [*results]
        for node in nodes:
            todo += [node.output(port) for port in range(len(_output_types(node)))]
            todo.append(Output(node, CONTROL))
        for node, port in todo:
            ports = read.setdefault(node, set())
            if port in ports:
                continue
            is_functional = bool(_functional_kind(node))
            if ports and not is_functional:
                continue
            ports.add(port)
            slots = self._slots(node, ports) if is_functional else range(len(node.inputs))
            todo += [node.inputs[slot] for slot in slots]
            todo += [Output(control, CONTROL) for control in node.controls]
        return read

    def require_harmless(self, nodes: Iterable[Node], demanded: Collection[Node]) -> None:
        """Raise RegionRejected if a node may fail that the run of a lowered graph does not need."""
        for node in nodes:
            if node not in demanded and _can_fail(node):
                raise region_rejected("form", f"{node.name} may fail for a result that is not read")

    def _slots(self, node: Node, ports: Collection[int]) -> Iterable[int]:
        """The inputs that some results of a functional node depend on."""
        calls, functions = function_calls(node.op), self._functions(node)
        if calls.kind == "while":
            cond, body = functions
            return self._variables(cond, body, ports)
        used = set[int]().union(*(self._arguments(each, ports) for each in functions))
        return (*range(calls.first_argument), *(calls.first_argument + index for index in used))

    def _variables(
        self, cond: FunctionGraph, body: FunctionGraph, ports: Collection[int]
    ) -> set[int]:
        """The variables of a loop that its condition, its effects, and some results depend on."""
        needed = {*self._arguments(cond, range(1)), *ports} - {CONTROL}
        while not (more := self._arguments(body, needed)) <= needed:
            needed |= more
        return needed

    def _arguments(self, function: FunctionGraph, ports: Iterable[int]) -> set[int]:
        """The arguments that some results of a function, and its control outputs, depend on."""
        nodes = self._demanded_results(function, ports)
        return {index for index, node in enumerate(function.arguments) if node in nodes}

    def _demanded_results(
        self, function: FunctionGraph, ports: Iterable[int]
    ) -> dict[Node, set[int]]:
        key = function, frozenset(ports) - {CONTROL}
        if key not in self._demanded:
            results = [function.returns[port] for port in sorted(key[1])]
            self._demanded[key] = self.demanded(results, function.control_returns)
        return self._demanded[key]

    def size(self, node: Node, shapes: StaticShapes, ports: Collection[int]) -> int:
        """Return the number of nodes in the functions of a node, whose results `ports` are read.

        Raises RegionRejected if it must be lowered.
        """
        calls, functions = function_calls(node.op), self._functions(node)
        operands = node.inputs[calls.first_argument :]
        initial = tuple(shapes[tensor] for tensor in operands)
        _require_traced(node)
        if calls.kind != "while":
            return sum(self._size_of_body(function, initial, ports) for function in functions)
        cond, body = functions
        _require_loop(node, cond, body, ports)
        size = self._size_of_body(cond, initial, range(1))
        size += self._size_of_body(body, initial, self._variables(cond, body, ports))
        require_constant_arguments(self.instances, cond, body, operands)
        names = [argument.name for argument in body.arguments]
        require_invariant_shapes(body, names, initial)
        return size

    def _functions(self, node: Node) -> tuple[FunctionGraph, ...]:
        op, library = lookup(node.op), self.instances.library
        if op is None or op.calls.kind not in _KINDS:
            raise region_rejected("form", f"{node.name} has no form of XLA")
        for func in op.calls.named_in(node.attrs) if op.calls.kind == "call" else ():
            if select_implementation(library, func.name, node.device) != func.name:
                raise region_rejected("form", f"{node.name} calls another implementation")
        functions = called_functions(node, op, self.instances)
        for function in {*functions} - self._bounded:
            require_bounded(function, self.instances, MAX_NESTED_CALLS)
        self._bounded.update(functions)
        return functions

    def _size_of_body(
        self, function: FunctionGraph, initial: tuple[Shape, ...], ports: Collection[int]
    ) -> int:
        key = function, initial, frozenset(ports)
        if key not in self._sizes:
            nodes = self._compiled_nodes(function, ports)
            calls = list(filter(_functional_kind, nodes))
            self._sizes[key] = len(nodes) + (
                self._size_of_calls(function, calls, initial, ports) if calls else 0
            )
        return self._sizes[key]

    def _size_of_calls(
        self,
        function: FunctionGraph,
        calls: Sequence[Node],
        initial: tuple[Shape, ...],
        ports: Collection[int],
    ) -> int:
        """The size of what functional nodes in a function call."""
        arguments = zip(function.arguments, initial, strict=True)
        fed = {argument.output().name: shape for argument, shape in arguments}
        shapes, read = infer_shapes(function.graph, fed), self._demanded_results(function, ports)
        for node in calls:
            if self.fitting_op(node) != node.op:
                raise region_rejected("effects", f"{node.name} has no effects")
        return sum(self.size(node, shapes, read[node]) for node in calls)

    def _compiled_nodes(self, function: FunctionGraph, ports: Collection[int]) -> list[Node]:
        """The nodes of a function that run. Raises RegionRejected for one that must not."""
        graph, needed = function.graph, function.needed()
        nodes = [node for node in graph if node not in function.arguments]
        if function.guessed or any(has_effect(node) for node in nodes if node not in needed):
            raise region_rejected("effects", f"{function.name} has effects that nothing needs")
        nodes = [node for node in nodes if node in needed]
        self.require_harmless(nodes, self._demanded_results(function, ports))
        constraints = ClusterConstraints(traced=True)
        rules = CompilationRules(graph, frames(graph), constraints, self.instances)
        rules.functionalized.update(_list_nodes(graph))
        for node in nodes:
            if node.device and DeviceName.parse(node.device) != DeviceName():
                raise region_rejected("device", f"{node.name} is on {node.device}")
            if not _functional_kind(node) and (reason := rules.rejection(node)):
                raise RegionRejected(reason)
        return nodes


def _can_fail(node: Node) -> bool:
    op = lookup(node.op)
    return op is None or (op.can_fail(node) and not issubclass(op, Const | Identity | NoOp))


def _require_traced(node: Node) -> None:
    """Raise RegionRejected for a type that is not traced, and for a predicate that is no bool."""
    types = [tensor.dtype for tensor in node.inputs]
    if any(dtype is None or dtype.kind not in _TRACED_KINDS for dtype in types):
        raise region_rejected("type", f"an input of {node.name} cannot be traced")
    if function_calls(node.op).kind == "if" and types[0] is not bool_:
        raise region_rejected("form", f"the predicate of {node.name} is not a bool")
    for port, dtype in enumerate(_output_types(node)):
        if dtype.kind not in _TRACED_KINDS or (dtype.kind == "resource" and node.readers(port)):
            raise region_rejected("type", f"result {port} of {node.name} cannot be traced")


def _require_loop(
    node: Node, cond: FunctionGraph, body: FunctionGraph, ports: Collection[int]
) -> None:
    """Raise RegionRejected for a loop that changes a handle, or tests no bool.

    A lowered loop does not run for a value that it does not change.
    """
    is_invariant = loop_invariant_arguments(body)
    for port, dtype in enumerate(body.input_types):
        if dtype.kind == "resource" and not is_invariant[port]:
            raise region_rejected("form", f"{node.name} changes a handle")
        returned = strip_identities(body.returns[port])
        if port in ports and returned == body.arguments[port].output():
            raise region_rejected("form", f"result {port} of {node.name} does not change")
    if all(is_invariant) or cond.output_types != (bool_,):
        raise region_rejected("form", f"{node.name} changes no value, or tests no bool")
