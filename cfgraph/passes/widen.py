"""Widen a graph to double precision: every float becomes float64, complex64 becomes complex128.

    x = Placeholder() {dtype=float32}      ──▶      x = Placeholder() {dtype=float64}
    y = Mul(x, x) {T=float32}                       y = Mul(x, x) {T=float64}

An op without a double-precision form, or whose result depends on the bits of a number, keeps its
type and is placed between two Casts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfgraph.errors import Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import first_names
from cfgraph.ir.signature import AttrDef
from cfgraph.ops.families.tensor_array_ops import TensorArrayOp
from cfgraph.ops.opdef.op import lookup
from cfgraph.passes.lower.lower import lower
from cfgraph.passes.report import Report, op_counts

_SHOWN: Final = 3


def widen(graph: Graph) -> Report:
    """Give all floats of a graph 64 bits, and complex numbers twice that, in place.

    Types, constants, placeholders and variables; functional nodes are lowered first. `names` of the
    report has what stays narrow, each as it was, and `warnings` say so.

    Raises Unsupported where such an op wants a reference to a variable, which a Cast cannot give.
    """
    lower(graph)
    before = op_counts(graph)
    wanted = {node: dict(_widened_attributes(node)) for node in graph}
    kept = [node for node, attrs in wanted.items() if attrs and _keeps_type(node, attrs)]
    for node in kept:
        wanted[node] = {}
    fixed = [node for node in graph if _reads_narrow(node, wanted[node])]
    casts = _casts_needed(graph, wanted)
    changed = 0
    for node, attrs in wanted.items():
        changed += bool(attrs)
        for key, value in attrs.items():
            graph.set_attr(node, key, value)
    for (item, dtype), uses in casts.items():
        made = _cast(graph, item, dtype)
        for node, slot in uses:
            graph.set_input(node, slot, made)
    narrow = list(dict.fromkeys([*kept, *fixed]))
    names = {node.name: (node.name,) for node in narrow}
    return Report(changed + len(casts), names, _warnings(narrow), before, op_counts(graph))


def wide(dtype: DType) -> DType:
    """The type that a type becomes: itself where it is no float and no complex number."""
    base = dtype.base
    wider = dtypes.float64 if base.is_floating else dtypes.complex128 if base.is_complex else base
    return wider.ref if dtype.is_ref else wider


def _widened_attributes(node: Node) -> Iterator[tuple[str, Any]]:
    """The attributes of a node that become other ones, defaults that it does not carry too."""
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
        return TensorValue(value.array.astype(wide(value.dtype).numpy))
    return value


def _keeps_type(node: Node, attrs: Mapping[str, Any]) -> bool:
    op = lookup(node.op)
    assert op is not None
    if op.algebra.bitwise:
        return True
    declared = op.parsed().attrs
    return any(_is_disallowed(declared[key], value) for key, value in attrs.items())


def _is_disallowed(attr: AttrDef, value: Any) -> bool:
    parts = value if isinstance(value, tuple) else (value,)
    return attr.allowed is not None and any(part not in attr.allowed for part in parts)


def _reads_narrow(node: Node, attrs: Mapping[str, Any]) -> bool:
    """True for a node that takes or gives narrow floats whatever its attributes say.

    The flow of TensorArrays is a float that only orders what is done with them.
    """
    op = lookup(node.op)
    if op is None or issubclass(op, TensorArrayOp):
        return False
    types = [*_types(node, attrs, inputs=True), *_types(node, attrs, inputs=False)]
    return any(wide(dtype) is not dtype for dtype in types)


def _types(node: Node, attrs: Mapping[str, Any], *, inputs: bool) -> list[DType]:
    """The types of a node's inputs or outputs under changed attributes; none if not known."""
    op = lookup(node.op)
    if op is None:
        return []
    signature, given = op.parsed(), {**node.attrs, **attrs}
    try:
        return signature.input_types(given) if inputs else signature.output_types(given)
    except ValueError:
        return []


CastUses = dict[tuple[Output, DType], list[tuple[Node, int]]]


def _casts_needed(graph: Graph, wanted: Mapping[Node, Mapping[str, Any]]) -> CastUses:
    """Which outputs are to be cast to what, and who reads that."""
    gives = {node: _types(node, wanted[node], inputs=False) for node in graph}
    found: CastUses = {}
    for node in graph:
        types = _types(node, wanted[node], inputs=True)
        for slot, (item, want) in enumerate(zip(node.inputs, types, strict=False)):
            have = gives[item.node][item.port : item.port + 1]
            if not have or have[0].base is want.base or wide(have[0].base) is not wide(want.base):
                continue
            if want.is_ref:
                message = f"{node.op} has no form for {wide(want.base)}, and writes to {item.name}"
                raise Unsupported(message, node=node)
            found.setdefault((item, want.base), []).append((node, slot))
    return found


def _cast(graph: Graph, item: Output, dtype: DType) -> Output:
    name = f"{item.node.name}/as_{dtype}"
    return graph.add("Cast", item, name=name, device=item.node.device, DstT=dtype).output()


def _warnings(narrow: list[Node]) -> tuple[str, ...]:
    if not narrow:
        return ()
    told = first_names([f"{node.name} ({node.op})" for node in narrow], _SHOWN)
    return (f"no double precision in {told}",)
