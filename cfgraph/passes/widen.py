"""Widen a graph to double precision: every float becomes float64, complex64 becomes complex128.

    x = Placeholder() {dtype=float32}      ──▶      x = Placeholder() {dtype=float64}
    y = Mul(x, x) {T=float32}                       y = Mul(x, x) {T=float64}

An op without a double-precision form, or whose result depends on the bits of a number, keeps its
type and is placed between two Casts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from cfgraph.errors import Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue, repeated_element
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import first_names
from cfgraph.ir.signature import AttrDef
from cfgraph.ops.families.tensor_array_ops import TensorArrayOp
from cfgraph.ops.opdef.op import lookup
from cfgraph.passes.lowering import lower
from cfgraph.passes.outcome import Report, op_counts

_SHOWN: Final = 3


def widen(graph: Graph) -> Report:
    """Widen all floats of a graph to 64 bits, and complex numbers to 128, in place.

    This covers types, constants, placeholders, and variables. Functional nodes are lowered first.
    The report lists the nodes that stay narrow in `names` and `warnings`.

    Raises Unsupported if such a node expects a reference to a variable, which a Cast cannot output.
    """
    lower(graph)
    before = op_counts(graph)
    new_attrs = {node: dict(_widened_attributes(node)) for node in graph}
    narrow = [node for node, attrs in new_attrs.items() if attrs and _stays_narrow(node, attrs)]
    for node in narrow:
        new_attrs[node] = {}
    narrow += [node for node in graph if _has_narrow_type(node, new_attrs[node])]
    casts = _casts_needed(graph, new_attrs)
    changed = 0
    for node, attrs in new_attrs.items():
        changed += bool(attrs)
        for key, value in attrs.items():
            graph.set_attr(node, key, value)
    for (x, dtype), uses in casts.items():
        cast = _add_cast(graph, x, dtype)
        for node, slot in uses:
            graph.set_input(node, slot, cast)
    narrow = list(dict.fromkeys(narrow))
    names = {node.name: (node.name,) for node in narrow}
    return Report(changed + len(casts), names, _warnings(narrow), before, op_counts(graph))


def wide(dtype: DType) -> DType:
    """The double-precision form of a type; a type that is not a float or complex is unchanged."""
    base = dtype.base
    wider = dtypes.float64 if base.is_floating else dtypes.complex128 if base.is_complex else base
    return wider.ref if dtype.is_ref else wider


def _widened_attributes(node: Node) -> Iterator[tuple[str, Any]]:
    """Attributes (including defaults) that change when the node is widened to double precision."""
    op = lookup(node.op)
    declared: Mapping[str, AttrDef] = {} if op is None else op.parsed().attrs
    for key, attr in declared.items():
        old = node.attrs.get(key, attr.default)
        new = _widened_value(old)
        if new is not old and new != old:
            yield key, new


def _widened_value(value: Any) -> Any:
    if isinstance(value, DType):
        return wide(value)
    if isinstance(value, tuple):
        return tuple(map(_widened_value, value))
    if isinstance(value, TensorValue) and wide(value.dtype) is not value.dtype:
        return TensorValue(_widened_array(value.array, wide(value.dtype).numpy))
    return value


def _widened_array(array: Any, dtype: Any) -> Any:
    if repeated_element(array) is None:
        return array.astype(dtype)
    first = array[(slice(1),) * array.ndim].astype(dtype)
    return np.broadcast_to(first, array.shape)


def _stays_narrow(node: Node, attrs: Mapping[str, Any]) -> bool:
    """True for an op that reads bits or does not allow the widened attributes."""
    op = lookup(node.op)
    assert op is not None
    if op.algebra.bitwise:
        return True
    declared = op.parsed().attrs
    return any(_is_disallowed(declared[key], value) for key, value in attrs.items())


def _is_disallowed(attr: AttrDef, value: Any) -> bool:
    values = value if isinstance(value, tuple) else (value,)
    return attr.allowed is not None and any(value not in attr.allowed for value in values)


def _has_narrow_type(node: Node, attrs: Mapping[str, Any]) -> bool:
    """True for a node that has narrow inputs or outputs even with the widened attributes.

    TensorArray ops are exempt: their flow is a float, but carries only the order of accesses.
    """
    op = lookup(node.op)
    if op is None or issubclass(op, TensorArrayOp):
        return False
    types = [*_types(node, attrs, inputs=True), *_types(node, attrs, inputs=False)]
    return any(wide(dtype) is not dtype for dtype in types)


def _types(node: Node, attrs: Mapping[str, Any], *, inputs: bool) -> list[DType]:
    """The types of a node's inputs or outputs with changed attributes, or none if unknown."""
    op = lookup(node.op)
    if op is None:
        return []
    signature, merged = op.parsed(), {**node.attrs, **attrs}
    try:
        return signature.input_types(merged) if inputs else signature.output_types(merged)
    except ValueError:
        return []


CastUses = dict[tuple[Output, DType], list[tuple[Node, int]]]


def _casts_needed(graph: Graph, new_attrs: Mapping[Node, Mapping[str, Any]]) -> CastUses:
    """The outputs to cast, by type, with the inputs that read the result."""
    output_types = {node: _types(node, new_attrs[node], inputs=False) for node in graph}
    casts: CastUses = {}
    for node in graph:
        types = _types(node, new_attrs[node], inputs=True)
        for slot, (x, expected) in enumerate(zip(node.inputs, types, strict=False)):
            actual = output_types[x.node][x.port : x.port + 1]
            if not actual or actual[0].base is expected.base:
                continue
            if wide(actual[0].base) is not wide(expected.base):
                continue
            if expected.is_ref:
                dtype = wide(expected.base)
                message = f"{node.op} writes to {x.name}, but has no form for {dtype}"
                raise Unsupported(message, node=node)
            casts.setdefault((x, expected.base), []).append((node, slot))
    return casts


def _add_cast(graph: Graph, x: Output, dtype: DType) -> Output:
    name = f"{x.node.name}/as_{dtype}"
    return graph.add("Cast", x, name=name, device=x.node.device, DstT=dtype).output()


def _warnings(narrow: list[Node]) -> tuple[str, ...]:
    if not narrow:
        return ()
    names = first_names([f"{node.name} ({node.op})" for node in narrow], _SHOWN)
    return (f"no double precision in {names}",)
