"""Uses of a variable's handle, through identities, Switches, loops, and functions.

A use is an access, or it forwards the handle. `blocker` names the first access that a constant in
place of the variable cannot serve: an assignment, or an op that takes a variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cfgraph.analysis.resource_handles import forwarded_outputs
from cfgraph.errors import InvalidInput, Unsupported
from cfgraph.ir.function_graph import FunctionGraph, instantiate, is_polymorphic
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.families.lookup_table_files import InitializeTableFromTextFileV2
from cfgraph.ops.families.lookup_tables import (
    InitializeTableV2,
    LookupTableFindV2,
    LookupTableImportV2,
    LookupTableSizeV2,
)
from cfgraph.ops.families.resource_variables import (
    VariableRead,
    VariableShape,
    VarIsInitializedOp,
)
from cfgraph.ops.families.variables import IsVariableInitialized
from cfgraph.ops.opdef.facts import FunctionCalls
from cfgraph.ops.opdef.op import function_calls, is_a, lookup, may_write, role_of

# functional nodes through whose functions handles are followed
_FOLLOWED = frozenset({"if", "case", "while", "call"})
# what fills a table that is filled once; a constant has the rows already
TABLE_INITIALIZERS: Final = (
    InitializeTableV2,
    LookupTableImportV2,
    InitializeTableFromTextFileV2,
)


class Blocker(NamedTuple):
    """A node that needs a variable, and the reason."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class HandleFlow:
    """Uses of the handle in an argument: the first blocker, and the outputs that return it."""

    blocker: Blocker | None = None
    outputs: frozenset[int] = frozenset()


@dataclass(slots=True)
class HandleUses:
    """The uses of handles in a graph and its library, analyzed once per argument of a function."""

    library: Mapping[str, Function]
    _bodies: dict[str, FunctionGraph | str] = field(default_factory=dict)
    _flows: dict[tuple[str, int], HandleFlow] = field(default_factory=dict)

    def body(self, name: str) -> FunctionGraph | str:
        """The body of a function, or the reason why it is not analyzed."""
        if name not in self._bodies:
            self._bodies[name] = self._instance(name)
        return self._bodies[name]

    def _instance(self, name: str) -> FunctionGraph | str:
        function = self.library.get(name)
        if function is None:
            return f"the function {name} is not in the library"
        if is_polymorphic(function):
            return f"the types of function {name} depend on its caller"
        try:
            return instantiate(function, {}, self.library)
        except (InvalidInput, Unsupported) as error:
            return error.message

    def handles(self, start: Output, path: str = "") -> tuple[Blocker | None, list[Output]]:
        """The first blocker of a handle, and all outputs that forward it in its own graph."""
        found = {start: None}
        for tensor in (todo := [start]):
            for use in tensor.node.readers(tensor.port):
                blocker, outputs = self.forwarded(use.node, use.slot, path)
                if blocker is not None:
                    return blocker, list(found)
                new = [output for output in outputs if output not in found]
                found.update(dict.fromkeys(new))
                todo += new
        return self._ambiguous_merge(found, path), list(found)

    def _ambiguous_merge(self, found: Mapping[Output, None], path: str) -> Blocker | None:
        """A Merge that may also be the handle of another variable."""
        for tensor in found:
            node = tensor.node
            if role_of(node) is Role.MERGE and tensor.port == 0:
                for source in node.inputs:
                    if source not in found:
                        name = path + node.name
                        return Blocker(name, f"{name} may also be {source.name}")
        return None

    def forwarded(self, node: Node, slot: int, path: str) -> tuple[Blocker | None, list[Output]]:
        """The reason why a use needs a variable, or None, and the outputs that are the handle."""
        calls = function_calls(node.op)
        name = path + node.name
        if slot == 0 and is_a(node, *TABLE_INITIALIZERS):
            return None, []
        if calls.kind in _FOLLOWED and slot >= calls.first_argument:
            return self._through_functions(node, calls, slot - calls.first_argument, path)
        if _is_read(node, slot):
            return None, []
        outputs = forwarded_outputs(node, slot)
        if outputs:
            return None, outputs
        verb = "assigned" if may_write(node) else "needed"
        return Blocker(name, f"{verb} by {name} ({node.op})"), []

    def _through_functions(
        self, node: Node, calls: FunctionCalls, index: int, path: str
    ) -> tuple[Blocker | None, list[Output]]:
        """The outputs of a functional node that are the handle in an argument."""
        names = called_names(node, calls)
        flows = [self.flow(name, index, f"{path}{node.name}/") for name in names]
        for flow in flows:
            if flow.blocker is not None:
                return flow.blocker, []
        outputs = flows[-1].outputs
        is_loop = calls.kind == "while"
        # the condition of a loop returns no handle
        agree = all(flow.outputs == outputs for flow in (flows[1:] if is_loop else flows))
        if not agree or (is_loop and not outputs <= {index}):
            where = path + node.name
            return Blocker(where, f"{where} returns a handle that is not always the same"), []
        if is_loop and index not in outputs:
            where = path + node.name
            return Blocker(where, f"{where} replaces the handle"), []
        return None, [node.output(port) for port in sorted(outputs)]

    def flow(self, name: str, index: int, path: str) -> HandleFlow:
        """Return the uses of the handle in an argument of a function."""
        key = name, index
        if key not in self._flows:
            self._flows[key] = HandleFlow(Blocker(name, f"the function {name} calls itself"))
            self._flows[key] = self._argument_flow(name, index, path)
        return self._flows[key]

    def _argument_flow(self, name: str, index: int, path: str) -> HandleFlow:
        body = self.body(name)
        if isinstance(body, str):
            return HandleFlow(Blocker(path + name, body))
        blocker, found = self.handles(body.arguments[index].output(), path)
        handles = set(found)
        returned = [port for port, tensor in enumerate(body.returns) if tensor in handles]
        return HandleFlow(blocker, frozenset(returned))


def called_names(node: Node, calls: FunctionCalls) -> list[str]:
    """The names of the functions that a functional node calls, in the order of its attributes."""
    return [func.name for func in calls.named_in(node.attrs)]


def _is_read(node: Node, slot: int) -> bool:
    """True for an access that a constant can serve."""
    op = lookup(node.op)
    if op is None:
        return False
    if issubclass(op, VariableRead):
        return slot == 0 and op.value_attrs(node) is not None
    if is_a(node, VariableShape, VarIsInitializedOp, IsVariableInitialized):
        return True
    if is_a(node, LookupTableFindV2, LookupTableSizeV2):
        return slot == 0
    tensor = node.inputs[slot]
    dtype = tensor.dtype
    return dtype is not None and dtype.is_ref and not _takes_reference(node, slot)


def _takes_reference(node: Node, slot: int) -> bool:
    op = lookup(node.op)
    assert op is not None
    signature = op.parsed()
    ends = signature.input_ends(node.attrs)
    for arg, end in zip(signature.inputs, ends, strict=True):
        if slot < end:
            return arg.is_ref
    return True
