"""Values in place of handles: what reads a variable reads a tensor, also in functions.

    v ──▶ If(branch) ──▶ y                 Const ──▶ If(branch') ──▶ y
    branch(v) = ReadVariableOp(v)          branch'(v) = Identity(v)

A function whose arguments change is copied, once per set of arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.ir.attrs import Func, TensorValue
from cfgraph.ir.dtypes import DType, bool_, int64
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import function_from_body
from cfgraph.ir.names import unused_name
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.lookup_tables import LookupTableFindV2, LookupTableSizeV2
from cfgraph.ops.families.resource_variables import (
    VariableRead,
    VariableShape,
    VarIsInitializedOp,
)
from cfgraph.ops.families.variables import IsVariableInitialized
from cfgraph.ops.opdef.op import function_calls, is_a, lookup, role_of
from cfgraph.passes.freeze.handle_uses import TABLE_INITIALIZERS, HandleUses, called_names
from cfgraph.passes.freeze.tables import ConstantTable, replace_lookup

# annotations that describe outputs as handles
_HANDLE_ANNOTATIONS: Final = (
    *("_output_shapes", "_handle_dtypes", "_handle_shapes"),
    *("_input_shapes", "_read_only_resource_inputs"),
)
# of functional nodes
_SHAPES_ATTR: Final = "output_shapes"
_REFERENCE: Final = "Ref"


class ValueType(NamedTuple):
    """The type and the shape of a value in place of a handle: a variable, or keys of a table."""

    dtype: DType
    dims: tuple[int, ...]
    table: ConstantTable | None = None


Types = Mapping[int, ValueType]


@dataclass(slots=True)
class ValuePassing:
    """Rewrites the uses of handles in a graph, and copies the functions that take them."""

    graph: Graph
    uses: HandleUses
    _copies: dict[tuple[str, tuple[tuple[int, ValueType], ...]], str] = field(default_factory=dict)

    def replace(
        self, graph: Graph, handles: Mapping[Output, tuple[ValueType, Collection[Output]]]
    ) -> None:
        """Make the readers of handles read values.

        `handles` maps each handle, whose node is a value already, to the type of the value and all
        outputs that forward it.
        """
        by_node: dict[Node, dict[int, ValueType]] = {}
        for value_type, outputs in handles.values():
            for tensor in outputs:
                for use in tensor.node.readers(tensor.port):
                    by_node.setdefault(use.node, {})[use.slot] = value_type
        for node, types in by_node.items():
            self._replace_use(graph, node, types)

    def _replace_use(self, graph: Graph, node: Node, types: Types) -> None:
        op, calls = lookup(node.op), function_calls(node.op)
        assert op is not None
        if issubclass(op, VariableRead):
            graph.set_op(node, op.value_op, op.value_attrs(node) or {})
        elif issubclass(op, VariableShape):
            attrs = {"T": types[0].dtype, "out_type": node.attr("out_type")}
            graph.set_op(node, "Shape", attrs)
        elif issubclass(op, LookupTableFindV2) and types[0].table is not None:
            replace_lookup(graph, node, types[0].table)
        elif issubclass(op, LookupTableSizeV2):
            graph.set_op(node, "Size", {"T": types[0].dtype, "out_type": int64})
        elif issubclass(op, TABLE_INITIALIZERS):
            graph.connect(node, (), node.controls)
            graph.set_op(node, "NoOp", {})
        elif calls.kind:
            offset = calls.first_argument
            self._pass_values(graph, node, {slot - offset: item for slot, item in types.items()})
        elif role_of(node) is not None or op.aliasing.is_identity:
            _forward_values(graph, node, types)
        elif is_a(node, VarIsInitializedOp, IsVariableInitialized):
            controls = dict.fromkeys(node.predecessors)
            graph.connect(node, (), controls)
            value = TensorValue(np.array(True))
            graph.set_op(node, "Const", {"dtype": bool_, "value": value})

    def _pass_values(self, graph: Graph, node: Node, types: Types) -> None:
        """Make a functional node pass values to copies of its functions."""
        calls, attrs = function_calls(node.op), _without_handles(node.attrs)
        for key in calls.functions:
            value = attrs[key]
            if isinstance(value, tuple):
                attrs[key] = tuple(self._copied(func, types) for func in value)
            else:
                attrs[key] = self._copied(value, types)
        op = lookup(node.op)
        assert op is not None
        signature = op.parsed()
        inputs, outputs = signature.inputs[-1].type_attr, signature.outputs[-1].type_attr
        returned = self._returned(called_names(node, calls), types)
        changes = [(inputs, types)] if inputs == outputs else [(inputs, types), (outputs, returned)]
        for attr, changed in changes:
            if attr is not None:
                listed = attrs[attr]
                attrs[attr] = _with_types(listed, changed)
        shapes = attrs.get(_SHAPES_ATTR)
        if isinstance(shapes, tuple) and shapes:
            attrs[_SHAPES_ATTR] = tuple(
                Shape(returned[port].dims) if port in returned else shape
                for port, shape in enumerate(shapes)
            )
        graph.set_op(node, node.op, attrs)

    def _returned(self, names: Collection[str], types: Types) -> dict[int, ValueType]:
        """The types of the outputs that are values now."""
        return {
            port: item
            for name in names
            for index, item in types.items()
            for port in self.uses.flow(name, index, "").outputs
        }

    def _copied(self, func: Func, types: Types) -> Func:
        key = func.name, tuple(sorted(types.items()))
        if key not in self._copies:
            self._copies[key] = self._copy(func.name, types)
        return Func(self._copies[key], func.attrs)

    def _copy(self, name: str, types: Types) -> str:
        """Copy a function with values in place of the handles of some arguments."""
        library = self.graph.functions
        function = library[name]
        # the bodies of the analysis stay as they are
        body = HandleUses(library).body(name)
        assert not isinstance(body, str)
        handles: dict[Output, tuple[ValueType, Collection[Output]]] = {}
        for index, item in types.items():
            argument = body.arguments[index]
            _, outputs = self.uses.handles(argument.output())
            handles[argument.output()] = item, outputs
        for index, item in types.items():
            body.graph.set_attr(body.arguments[index], "T", item.dtype)
        self.replace(body.graph, handles)
        made = unused_name(f"{name}_frozen", library)
        definition = function.definition
        written = function_from_body(made, body, definition, library)
        attrs = {index: _without_handles(found) for index, found in definition.arg_attrs.items()}
        library[made] = Function(
            made,
            replace(written.definition, attrs=_without_handles(definition.attrs), arg_attrs=attrs),
        )
        return made


def _forward_values(graph: Graph, node: Node, types: Types) -> None:
    """Change the type of a node that forwards a handle; a reference becomes a value."""
    attrs = _without_handles(node.attrs)
    listed = attrs.get("T")
    if isinstance(listed, tuple):
        attrs["T"] = _with_types(listed, types)
    else:
        attrs["T"] = next(iter(types.values())).dtype
    op = lookup(node.op)
    takes_ref = op is not None and any(arg.is_ref for arg in op.parsed().inputs)
    graph.set_op(node, node.op.removeprefix(_REFERENCE) if takes_ref else node.op, attrs)


def _with_types(listed: Sequence[DType], changed: Types) -> tuple[DType, ...]:
    return tuple(
        changed[slot].dtype if slot in changed else dtype for slot, dtype in enumerate(listed)
    )


def _without_handles(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in attrs.items() if key not in _HANDLE_ANNOTATIONS}
