"""Freeze a graph: the values of variables that nothing assigns become constants.

    v ──▶ ReadVariableOp ──▶ MatMul        becomes        Const ──▶ MatMul

Inputs with a fixed value become constants, too. Calls are inlined, `optimize` removes branches that
are never taken, and a variable that only such a branch assigned is a constant after all. Handles
that loops and conditionals pass to their functions become values. Tables stay, with the nodes that
initialize them, or become constants, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.analysis.feeds_and_fetches import is_input
from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.analysis.tables import static_tables
from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.colocation import COLOCATION_ATTR, colocated_name, colocation_groups, without_groups
from cfgraph.ir.dtypes import DType, resource
from cfgraph.ir.functions import BodyNode
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node, Output, require_graph
from cfgraph.ir.library import called_functions, remove_uncalled_functions
from cfgraph.ir.names import first_names, name_list
from cfgraph.ir.node import node_name
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ir.traversal import ancestors, is_partitioned, topological_order
from cfgraph.ops.families.constants import Const
from cfgraph.ops.families.control_flow import NoOp
from cfgraph.ops.families.lookup_tables import LookupTable, TableHandle
from cfgraph.ops.families.variables import VariableV2
from cfgraph.ops.opdef.op import is_a, is_functional, lookup
from cfgraph.passes.faulty_nodes import defer_faults, has_faulty_nodes, require_no_faulty_nodes
from cfgraph.passes.freeze.handle_uses import Blocker, HandleUses
from cfgraph.passes.freeze.tables import TableRows, TableUses, find_constant_tables
from cfgraph.passes.freeze.updates import awaited_updates, drop_updates
from cfgraph.passes.freeze.values import ValuePassing, ValueType
from cfgraph.passes.lower.lower import inline_calls
from cfgraph.passes.lowering import lower
from cfgraph.passes.optimize.optimize import optimize, prune, remaining_names
from cfgraph.passes.optimize.rewriting import Rewrite, is_function_of_inputs
from cfgraph.passes.outcome import Report, op_counts, unchanged_on_error
from cfgraph.stack_position import LOCATORS, pass_position

_BRANCHES: Final = "branches"
_MAX_NAMES: Final = 4
Key = tuple[str, str]
# the type of the value in place of a handle, and the outputs that are the handle
Handles = dict[Output, tuple[ValueType, list[Output]]]


class StoredVariable(Protocol):
    """A variable of a state."""

    @property
    def value(self) -> Any:
        """Its value, None if it has none."""


class VariableStore(Protocol):
    """Values of variables by container and name, such as the state that `restore` returns."""

    def variables(self) -> Iterator[tuple[Key, StoredVariable]]:
        """The variables with their keys."""

    def tables(self) -> Iterator[tuple[Key, LookupTable]]:
        """The tables that are filled, with their keys."""


@dataclass(frozen=True, slots=True)
class FrozenVariable:
    """A variable: replaced by a constant, or kept for a reason because of a node."""

    name: str
    dtype: DType
    shape: Shape
    bytes: int = 0
    frozen: bool = True
    reason: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class KeptTable:
    """A table that stays, and the nodes that initialize it."""

    name: str
    initializers: tuple[str, ...]  #: The nodes that fill it.


@dataclass(frozen=True, slots=True)
class FrozenTable:
    """A table that is a constant now."""

    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class Frozen(Report):
    """Report of `freeze`.

    `inputs` are the tensors that are constants now, `branches` the rewrites that removed a branch,
    and `updates` the nodes that were dropped.
    """

    variables: tuple[FrozenVariable, ...] = ()
    inputs: tuple[str, ...] = ()
    branches: tuple[Rewrite, ...] = ()
    tables: tuple[KeptTable, ...] = ()
    constant_tables: tuple[FrozenTable, ...] = ()
    updates: tuple[str, ...] = ()


def freeze(
    graph: Graph,
    variables: VariableStore | Mapping[str, Any] | None = None,
    *,
    outputs: str | Iterable[str],
    values: Mapping[str, Any] | None = None,
    keep_variables: Iterable[str] = (),
    drop_updates: bool = False,
    constant_tables: bool = False,
) -> Frozen:
    """Replace variables by their values, in place, and remove what the outputs do not need.

    Args:
        variables: the values: a state, as `restore` returns it, or arrays by name of the variable.
        outputs: tensors to compute, and nodes to run as `^node`.
        values: arrays for inputs, or for other tensors, by name, which are constants then.
        keep_variables: names of variables that stay variables.
        drop_updates: remove updates of variables that outputs wait for; those that a needed node
            reads in the same run stay.
        constant_tables: turn lookups in tables that are filled once into lookups in constants,
            with the rows of the state, or of the constants that fill them.

    Returns a report on every variable. Raises InvalidInput for an invalid graph, UsageError for an
    unknown name or a value that does not fit, Unsupported for a partitioned graph; the graph is
    unchanged then.
    """
    require_graph(graph)
    if is_partitioned(graph):
        message = "a partitioned graph cannot be frozen"
        raise Unsupported(message, hint="freeze the graph before it is partitioned")
    wanted = name_list(outputs)
    if not wanted:
        raise UsageError("no outputs to freeze for", hint="name a tensor, or a node as ^node")
    needed = [graph[node_name(name)] for name in (*wanted, *(values or ()))]
    before, size = op_counts(graph), len(graph)
    known = _values_by_key(graph, variables)
    unknown = [name for name in _array_names(variables) if ("", name) not in known]
    with paused_gc(nodes=size), unchanged_on_error(graph):
        rows = _table_rows(variables) if constant_tables else None
        freezer = _Freezer(graph, known, wanted, list(keep_variables), drop_updates, rows)
        deferred = defer_faults(graph, [*needed, *freezer.table_initializers()])
        freezer.set_inputs(values or {})
        freezer.run()
        if deferred:
            freezer.remove_faulty_branches()
        require_valid(graph)
    return Frozen(
        rewrites=freezer.count,
        names=remaining_names(graph, freezer.names),
        warnings=(*_unknown_warnings(unknown), *freezer.warnings()),
        before=before,
        after=op_counts(graph),
        variables=tuple(freezer.outcomes()),
        inputs=tuple(freezer.inputs),
        branches=tuple(item for item in freezer.applied if item.rule == _BRANCHES),
        tables=tuple(freezer.tables),
        constant_tables=tuple(freezer.constant_tables),
        updates=tuple(freezer.updates),
    )


LOCATORS[freeze.__code__] = pass_position


def _values_by_key(
    graph: Graph, variables: VariableStore | Mapping[str, Any] | None
) -> dict[Key, Any]:
    """The values of the variables of a graph. Raises UsageError for one that does not fit."""
    if variables is None:
        return {}
    if not isinstance(variables, Mapping):
        return {key: found.value for key, found in variables.variables()}
    bodies = (node for item in graph.functions.values() for node in item.definition.nodes)
    declared = {variable_key(node): node for node in (*graph, *bodies) if is_variable(node)}
    values: dict[Key, Any] = {}
    for name, value in variables.items():
        node = declared.get(("", name))
        if node is None:
            continue
        dtype, shape = _declared(node)
        # a variable of TensorFlow 1 without a rank may have any shape
        if not shape.rank and is_a(node, VariableV2):
            shape = UNKNOWN_SHAPE
        values["", name] = _fitting_array(value, dtype, shape, name)
    return values


def _table_rows(variables: VariableStore | Mapping[str, Any] | None) -> dict[Key, TableRows]:
    """The rows of the tables of a state that are filled once."""
    if variables is None or isinstance(variables, Mapping):
        return {}
    tables = variables.tables()
    return {key: TableRows(*table.export()) for key, table in tables if table.immutable}


def _array_names(variables: VariableStore | Mapping[str, Any] | None) -> Iterable[str]:
    return variables if isinstance(variables, Mapping) else ()


def _unknown_warnings(names: list[str]) -> Iterator[str]:
    if names:
        yield f"the graph has no variable named {first_names(names, _MAX_NAMES)}"


@dataclass(slots=True)
class _Freezer:
    """The state of one freeze."""

    graph: Graph
    values: Mapping[Key, Any]
    outputs: list[str]
    kept: list[str]
    drops_updates: bool
    rows: Mapping[Key, TableRows] | None
    inputs: list[str] = field(default_factory=list)
    frozen: dict[Key, FrozenVariable] = field(default_factory=dict)
    remaining: dict[Key, FrozenVariable] = field(default_factory=dict)
    applied: list[Rewrite] = field(default_factory=list)
    tables: list[KeptTable] = field(default_factory=list)
    constant_tables: list[FrozenTable] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    updates: list[str] = field(default_factory=list)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    count: int = 0

    # -- inputs ----------------------------------------------------------------------------------

    def set_inputs(self, values: Mapping[str, Any]) -> None:
        """Replace tensors by constants. Raises UsageError for a value that does not fit."""
        for name, value in values.items():
            tensor = self.graph.tensor(name)
            array = _fitting(tensor, value)
            attrs = {"dtype": tensor.dtype, "value": TensorValue(array)}
            self._replace_by_constant(tensor, attrs)
            self.inputs.append(tensor.name)
            self.count += 1

    def _replace_by_constant(self, tensor: Output, attrs: dict[str, Any]) -> None:
        graph, node = self.graph, tensor.node
        if node.output_count == 1 and not node.controls:
            graph.set_inputs(node, ())
            graph.set_op(node, "Const", attrs)
            return
        name = graph.unique_name(f"{node.name}/value")
        constant = graph.create(name, "Const", (), node.controls, attrs, node.device)
        graph.replace_uses(tensor, constant.output())

    # -- steps -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Inline calls, and freeze and optimize until nothing changes."""
        self.count += inline_calls(self.graph).rewrites
        self.tables = [*self._used_tables()]
        while True:
            # readers of a variable read its constant, before they are folded into copies of it
            self._optimize("prune", "arithmetic")
            self._optimize()
            tables = [*self._used_tables()]
            has_fewer, self.tables = len(tables) < len(self.tables), tables
            # variables of a branch that went are not needed: prune first
            changed = inline_calls(self.graph).rewrites
            if not changed and self.drops_updates:
                changed = self._drop_updates()
            if not changed:
                changed = self._freeze_variables() + self._freeze_tables()
                changed += self._drop_idle_controls()
            self.count += changed
            if not changed and not has_fewer:
                break
        kept = [*self.outputs, *(name for table in self.tables for name in table.initializers)]
        prune(self.graph, [self.graph[node_name(name)] for name in kept])
        remove_uncalled_functions(self.graph)

    def _optimize(self, *rules: str) -> None:
        """Apply these rules of `optimize`, by default all."""
        kept = [*self.outputs, *(f"^{n}" for table in self.tables for n in table.initializers)]
        report = optimize(self.graph, only=rules, fetches=kept)
        self.applied += report.applied
        self.names.update(report.names)
        self.count += report.rewrites

    def _drop_updates(self) -> int:
        """Drop the updates that outputs only wait for; returns their number."""
        found = [node for node, user in self._awaited_updates().items() if user is None]
        drop_updates(self.graph, found)
        self.updates += [node.name for node in found]
        return len(found)

    def _awaited_updates(self) -> dict[Node, Node | None]:
        return awaited_updates(self.graph, [self.graph[node_name(name)] for name in self.outputs])

    def remove_faulty_branches(self) -> None:
        """Lower the graph if branches with faulty nodes remain in functions, and freeze it again.

        Constants do not enter functions. Raises InvalidInput for faulty nodes that remain.
        """
        if has_faulty_nodes(self.graph) and is_functional(self.graph, self.graph):
            self.count += lower(self.graph).rewrites
            self.run()
        require_no_faulty_nodes(self.graph)

    def table_initializers(self) -> list[Node]:
        """The nodes that write the tables that outputs need."""
        return [self.graph[name] for table in self._used_tables() for name in table.initializers]

    def _used_tables(self) -> Iterator[KeptTable]:
        """The tables that outputs need, with the nodes that write them."""
        graph = self.graph
        needed = set(ancestors(graph, [graph[node_name(name)] for name in self.outputs]))
        handles = [node for node in needed if is_a(node, TableHandle)]
        if not handles:
            return
        writers: dict[Any, dict[Node, None]] = {}
        keys: dict[Node, Any] = {}
        for access in EffectAnalysis().accesses(graph):
            handle = graph.nodes.get(access.name)
            if handle is not None and is_a(handle, TableHandle):
                keys[handle] = access.resource
                if access.writes and access.node not in needed:
                    writers.setdefault(access.resource, {})[access.node] = None
        for node in graph:
            if node in needed and is_a(node, TableHandle):
                found = writers.get(keys.get(node), {})
                yield KeptTable(node.name, tuple(writer.name for writer in found))

    def _inputs_of(self, table: KeptTable) -> Iterator[Node]:
        """The inputs of the graph that initialize a table."""
        nodes = [self.graph[name] for name in table.initializers]
        for node in ancestors(self.graph, nodes):
            op = lookup(node.op)
            if op is not None and op.effects.is_input:
                yield node

    def _freeze_variables(self) -> int:
        """Freeze the variables of the graph that can be; returns their number."""
        graph = self.graph
        uses = HandleUses(graph.functions)
        nodes: dict[Key, list[Node]] = {}
        for node in graph:
            if is_variable(node):
                nodes.setdefault(variable_key(node), []).append(node)
        self.remaining = dict(self._in_functions())
        handles: Handles = {}
        found: list[tuple[Node, DType, Any]] = []
        for key, group in nodes.items():
            if key in self.remaining:
                continue
            blocker, flows = self._handle_uses(key, group, uses)
            outcome = _outcome(group[0], key, self.values.get(key), blocker)
            if blocker is not None:
                self.remaining[key] = outcome
                continue
            self.frozen[key] = outcome
            handles.update(flows)
            found += [(node, node.attr("dtype").base, self.values[key]) for node in group]
        self._replace_handles(uses, found, handles)
        return len(found)

    def _replace_handles(
        self, uses: HandleUses, found: list[tuple[Node, DType, Any]], handles: Handles
    ) -> None:
        """Turn nodes that output handles into constants, which their readers read."""
        graph = self.graph
        for node, dtype, value in found:
            attrs = {key: item for key, item in node.attrs.items() if key == COLOCATION_ATTR}
            tensor = TensorValue(np.asarray(value, dtype.numpy))
            graph.set_op(node, "Const", {"dtype": dtype, "value": tensor, **attrs})
        self._separate({node.name for node, _, _ in found})
        ValuePassing(graph, uses).replace(graph, handles)

    def _freeze_tables(self) -> int:
        """Turn lookups in tables with known rows into lookups in constants."""
        if self.rows is None or not self.tables:
            return 0
        graph, uses = self.graph, HandleUses(self.graph.functions)
        handles: Handles = {}
        found: list[tuple[Node, DType, Any]] = []
        named = {*map(node_name, self.outputs)}
        self.reasons = {}
        for item in find_constant_tables(graph, uses, self.rows, named):
            if not isinstance(item, TableUses):
                table, reason = item
                self.reasons |= dict.fromkeys([node.name for node in table.handles], reason)
                continue
            self.constant_tables.append(FrozenTable(item.name, len(item.table.keys)))
            for node, outputs in item.handles.items():
                keys = item.table.keys
                dtype = node.attr("key_dtype")
                found.append((node, dtype, keys))
                handles[node.output()] = ValueType(dtype, keys.shape, item.table), outputs
        self._replace_handles(uses, found, handles)
        return len(found)

    def _separate(self, constants: Collection[str]) -> None:
        """Drop the requests to be where these constants are, which can be anywhere."""
        for node in self.graph if constants else ():
            groups = colocation_groups(node.attrs)
            remaining = tuple(x for x in groups if colocated_name(x) not in constants)
            if len(remaining) < len(groups):
                attrs = without_groups(node.attrs)
                attrs |= {COLOCATION_ATTR: remaining} if remaining else {}
                self.graph.set_op(node, node.op, attrs)

    def _in_functions(self) -> Iterator[tuple[Key, FrozenVariable]]:
        """The variables of nodes in functions, whose accesses are not followed."""
        graph = self.graph
        for name in sorted(called_functions(graph)):
            for node in graph.functions[name].definition.nodes:
                if is_variable(node):
                    key, path = variable_key(node), f"{name}/{node.name}"
                    blocker = Blocker(path, f"{path} ({node.op}) may access it in a function")
                    yield key, _outcome(node, key, self.values.get(key), blocker)

    def _handle_uses(
        self, key: Key, group: list[Node], uses: HandleUses
    ) -> tuple[Blocker | None, dict[Output, tuple[ValueType, list[Output]]]]:
        """The reason why a variable stays, or the uses of its handles."""
        flows: dict[Output, tuple[ValueType, list[Output]]] = {}
        if key[1] in self.kept:
            return Blocker("", "kept on request"), flows
        named = set(map(node_name, self.outputs))
        for node in group:
            blocker, outputs = uses.handles(node.output())
            if blocker is not None:
                return blocker, flows
            output = next((x.node.name for x in outputs if x.node.name in named), None)
            if output is not None:
                return Blocker(output, "an output of the graph is its handle"), flows
            flows[node.output()] = ValueType(node.attr("dtype").base, ()), outputs
        value = self.values.get(key)
        if value is None:
            return Blocker("", "has no value"), flows
        dims = np.shape(value)
        return None, {
            handle: (ValueType(item.dtype, dims), outputs)
            for handle, (item, outputs) in flows.items()
        }

    def _drop_idle_controls(self) -> int:
        """Drop control edges from nodes that only compute values, of constants and inputs."""
        graph, count = self.graph, 0
        idle: set[Node] = set()
        for node in topological_order(graph).nodes:
            awaited = [control for control in node.controls if control not in idle]
            sources = [item.node for item in node.inputs]
            if len(awaited) < len(node.controls) and not _is_primitive(node):
                count += len(node.controls) - len(awaited)
                graph.set_controls(node, awaited)
            if not awaited and all(x in idle for x in sources) and _does_nothing(node):
                idle.add(node)
        return count

    # -- report ----------------------------------------------------------------------------------

    def outcomes(self) -> Iterator[FrozenVariable]:
        """All variables that the outputs need, in the order of their names.

        What only fills tables, such as the path of a vocabulary, is none.
        """
        outputs = [self.graph[node_name(name)] for name in self.outputs]
        needed = {*ancestors(self.graph, outputs)}
        variables = [node for node in self.graph if is_variable(node)]
        unneeded = {variable_key(node) for node in variables if node not in needed}
        unneeded -= {variable_key(node) for node in variables if node in needed}
        everything = {**self.remaining, **self.frozen}
        return (everything[key] for key in sorted(everything) if key not in unneeded)

    def warnings(self) -> Iterator[str]:
        """Facts about the result that a person should know."""
        unknown = sorted({*self.kept} - {name for _, name in (*self.frozen, *self.remaining)})
        if unknown:
            yield f"no output needs a variable named {first_names(unknown, _MAX_NAMES)}"
        inputs = [node.output() for node in self.graph if is_input(node)]
        handles = [tensor.name for tensor in inputs if tensor.dtype and tensor.dtype.is_handle]
        if handles:
            names = first_names(handles, _MAX_NAMES)
            yield f"no variables for the inputs {names}, which are handles; freeze the SavedModel"
        yield from self._update_warnings()
        yield from self._table_warnings()

    def _table_warnings(self) -> Iterator[str]:
        for table in self.tables:
            if table.name in self.reasons:
                yield f"table {table.name} is no constant: {self.reasons[table.name]}"
            if table.initializers:
                names = ", ".join(table.initializers)
                fed = first_names([node.name for node in self._inputs_of(table)], _MAX_NAMES)
                feeds = f", which needs {fed}" if fed else ""
                yield f"table {table.name} is empty until its initializer runs: {names}{feeds}"
            else:
                yield f"table {table.name} has no initializer in the graph"
        handles = (node for item in static_tables(self.graph).values() for node in item.handles)
        found = {node.name for node in handles} & {table.name for table in self.tables}
        if found and self.rows is None:
            listed = first_names(sorted(found), _MAX_NAMES)
            yield f"--constant-tables makes constants of tables that are filled once: {listed}"

    def _update_warnings(self) -> Iterator[str]:
        if self.updates:
            names = first_names(self.updates, _MAX_NAMES)
            yield f"dropped updates of variables, which no output reads in the same run: {names}"
        awaited = self._awaited_updates()
        unread = [node.name for node, user in awaited.items() if user is None]
        if unread:
            names = first_names(unread, _MAX_NAMES)
            yield f"--drop-updates drops what outputs wait for, but do not read: {names}"
        read = [f"{node.name} ({user.name})" for node, user in awaited.items() if user is not None]
        if read and self.drops_updates:
            names = first_names(read, _MAX_NAMES)
            yield f"kept updates of variables that a needed node then reads: {names}"


def _is_primitive(node: Node) -> bool:
    """True for a node of control flow, which may wait in a frame."""
    op = lookup(node.op)
    return op is None or op.role is not None


def _does_nothing(node: Node) -> bool:
    """True for a node that only has values, and is live where its inputs are."""
    op = lookup(node.op)
    if op is None or op.role is not None:
        return False
    return issubclass(op, (Const, NoOp)) or op.effects.is_input or is_function_of_inputs(node)


def _outcome(
    node: Node | BodyNode, key: Key, value: Any, blocker: Blocker | None
) -> FrozenVariable:
    size = 0 if value is None else int(np.asarray(value).nbytes)
    name, (dtype, shape) = key[1], _declared(node)
    if blocker is None:
        return FrozenVariable(name, dtype, Shape(np.shape(value)), size)
    return FrozenVariable(name, dtype, shape, size, False, blocker.reason, blocker.node)


def _fitting(tensor: Output, value: Any) -> Any:
    """The array of a value for a tensor. Raises UsageError for another type or shape."""
    dtype = tensor.dtype
    if dtype is None or dtype.is_ref or dtype.is_handle or dtype.kind == "variant":
        message = f"{tensor.name} is {dtype or 'of unknown type'}, of which there is no constant"
        raise UsageError(message, node=tensor.node)
    declared = tensor.node.attrs.get("shape")
    shape = declared if isinstance(declared, Shape) else UNKNOWN_SHAPE
    return _fitting_array(value, dtype, shape, tensor.name)


def _fitting_array(value: Any, dtype: DType, shape: Shape, name: str) -> Any:
    """The array of a value. Raises UsageError for another type or shape."""
    try:
        array = np.asarray(value, dtype.numpy)
        is_exact = not dtype.is_integer or np.array_equal(array, value)
    except (TypeError, ValueError, OverflowError):
        is_exact = False
    if not is_exact:
        raise UsageError(f"the value of {name} is not {dtype}")
    if not shape.accepts(array.shape):
        message = f"the value of {name} has shape {list(array.shape)}, expected {shape}"
        raise UsageError(message)
    return array


def _declared(node: Node | BodyNode) -> tuple[DType, Shape]:
    """The type and the shape that a variable's node declares; the caller of a function may set the
    type.
    """
    dtype, shape = node.attrs.get("dtype"), node.attrs.get("shape")
    known = dtype.base if isinstance(dtype, DType) else resource
    return known, shape if isinstance(shape, Shape) else UNKNOWN_SHAPE
