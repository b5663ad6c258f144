"""Groups of one node, for each case of the sweep over ops that a kernel can be generated for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ops.evaluate import numpy_kernel
from cfgraph.ops.op import lookup
from cfgraph.runtime.fused.group import Group
from cfgraph.runtime.fused.groups import is_elementwise
from cfgraph.runtime.fused.ready import Machine
from tests.ops import harness
from tests.ops.harness import Case, node_of
from tests.runtime.fused.host import Batch

FAMILIES = ("arithmetic", "cast", "elementary", "identity", "layers", "selections", "special")

# what is compared: its label, the group, its inputs, NumPy's result, and how far it may be off
Compared = tuple[str, Group, list[Any], Any, int]
# functions of the C library, which differ from NumPy's and SciPy's in the last bits
ROUNDED = 4
SPECIAL = {"Lgamma": 16, "Pow": 8}
ROUGH = {
    *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "Cos", "Cosh", "Elu", "Erf"),
    *("Erfc", "Exp", "Expm1", "Log", "Log1p", "Selu", "Sigmoid", "Sin", "Sinh", "Softplus"),
    *("SoftplusGrad", "Tan", "Tanh", "Xlog1py", "Xlogy"),
}


def cases(each: int, families: Sequence[str] = FAMILIES) -> Iterator[tuple[Case, Node]]:
    """So many cases of each elementwise op on each combination of types."""
    seen: dict[Any, int] = {}
    for family in families:
        for item in harness.families()[family]:
            if item.error or any(array.dtype == object for array in item.inputs):
                continue
            key = item.op, tuple(array.dtype for array in item.inputs)
            if seen.get(key, 0) < each and is_elementwise(node := node_of(item)):
                seen[key] = seen.get(key, 0) + 1
                yield item, node


def group_of(node: Node, machine: Machine) -> Group:
    """One node as a group."""
    op = lookup(node.op)
    assert op is not None
    kernel = numpy_kernel(node, op)
    return Group([node], list(node.inputs), [node.output()], [kernel], machine)


def distance(got: Any, want: Any) -> int:
    """How many numbers lie between two that should be one, at most; NaN is as good as NaN."""
    got, want = np.atleast_1d(got).ravel(), np.atleast_1d(want).ravel()
    if got.dtype.kind in "biu":
        return 0 if np.array_equal(got, want) else 1 << 64
    bits = np.dtype(f"i{got.itemsize}")
    one, other = (_ordered(np.ascontiguousarray(item).view(bits)) for item in (got, want))
    apart = [
        abs(int(x) - int(y))
        for x, y, both in zip(one, other, np.isnan(got) & np.isnan(want), strict=True)
        if not both
    ]
    return max(apart, default=0)


def _ordered(bits: Any) -> Any:
    """Integers in the order of the floats that have their bits; both zeros are 0."""
    least = np.iinfo(bits.dtype).min
    return np.where(bits < 0, least - bits, bits)


def sweep(machine: Batch, each: int) -> int:
    """Compare so many cases of each op with NumPy; the number of ops that were compared."""
    found: list[Compared] = []
    with np.errstate(all="ignore"):
        for item, node in cases(each):
            group = group_of(node, machine)
            values = [array if array.ndim else array[()] for array in item.inputs]
            want = np.asarray(numpy_kernel(node, harness.lookup(item.op))(*values))
            given = [machine.to_device(array) for array in item.inputs]
            here = given and all(type(one) is machine.array for one in given)
            if here and group.prepare(given):
                allowed = SPECIAL.get(item.op, ROUNDED if item.op in ROUGH else 0)
                found.append((item.label, group, given, want, allowed))
        wrong = list(_wrong(machine, found))
    assert not wrong, "\n".join(wrong[:20])
    return len({node.op for _, group, *_ in found for node in group.nodes})


def _wrong(
    machine: Batch, found: Sequence[tuple[str, Group, list[Any], Any, int]]
) -> Iterator[str]:
    for label, group, given, want, allowed in found:
        got = machine.to_host(group(*given))
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            yield f"{label}: {got.dtype}{got.shape}, not {want.dtype}{want.shape}"
        elif (apart := distance(got, want)) > allowed * machine.roughness:
            yield f"{label}: {apart} apart"
