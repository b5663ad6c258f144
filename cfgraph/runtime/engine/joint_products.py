"""Matrix products that the node that reads them computes, less often or in part.

The gradient of a weight in a loop is a sum with one product per iteration. Each product has a short
inner dimension, and adding it reads and writes the whole sum:

    while: sum = sum + MatMul(x, dy, transpose_a=True)

The products of several iterations are one product over their joined inner dimensions, which
reads and writes the sum once. A slice of a product computes only its part. Sums differ from those
of single products in the order of additions only. All executors run the kernels that are chosen
here, so that they agree bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cfgraph.ir.devices import is_gpu
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import EXIT, MERGE, NEXT_ITERATION, SWITCH
from cfgraph.ops.families.constants import identity
from cfgraph.ops.kernels.matrix_products import multiply
from cfgraph.ops.opdef.op import Kernel

if TYPE_CHECKING:
    from cfgraph.runtime.engine.plan import KernelWrapper, NodePlan, Plan

_RANK: Final = 2
_OPERANDS: Final = 2
# elements of a product below which joining costs more than it saves
_MIN_ELEMENTS: Final = 1 << 14
# rows and columns of a product below which the joined factors are large beside it
_MIN_SIDE: Final = 64
# the inner dimension of a product that is efficient by itself, and of joined products
_MAX_INNER: Final = 128
_JOINED_INNER: Final = 384


class Deferred:
    """A value that is computed when it is first read."""

    value: Any
    shape: tuple[int, ...]


def evaluated(value: Any) -> Any:
    """A value as an array, if it is deferred."""
    return value.value if isinstance(value, Deferred) else value


class DeferredProduct(Deferred):
    """The product of two matrices, [m, k] and [k, n], which has not been computed."""

    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right
        self.shape: tuple[int, int] = len(left), right.shape[1]
        self.ndim, self.inner = _RANK, len(right)

    @cached_property
    def value(self) -> Any:
        """The product, [m, n]."""
        return multiply(self.left, self.right)

    def __getitem__(self, index: tuple[Any, ...]) -> Any:
        """A part of the product; only its rows and columns are computed."""
        if len(index) > _RANK or any(type(entry) is not slice for entry in index):
            return self.value[index]
        rows, columns = [*index, slice(None), slice(None)][:_RANK]
        return multiply(self.left[rows], self.right[:, columns])


class _Factors:
    """Factors of products side by side, as rows: [inner, m] and [inner, n]. Sums share a prefix."""

    def __init__(self, rows: int, columns: int, dtype: Any) -> None:
        self.left = np.empty((_JOINED_INNER, rows), dtype)
        self.right = np.empty((_JOINED_INNER, columns), dtype)
        self.inner = 0

    def append(self, left_transposed: Any, right: Any) -> None:
        """Append the factors of a product, for which there is space."""
        start = self.inner
        self.inner += len(right)
        self.left[start : self.inner] = left_transposed
        self.right[start : self.inner] = right


class JoinedSum(Deferred):
    """The sum of a matrix and products that are still to be added to it.

    It is immutable: the products are the first `inner` rows of factors that longer sums share.
    """

    def __init__(self, total: Any, factors: _Factors | None = None) -> None:
        self.total, self.shape, self.factors = total, total.shape, factors
        self.inner = 0 if factors is None else factors.inner

    def add(self, product: DeferredProduct) -> JoinedSum:
        """The sum with one more product."""
        if self.inner + product.inner > _JOINED_INNER:
            return JoinedSum(self.value).add(product)
        factors = self.factors
        if factors is None or factors.inner != self.inner:  # another sum has continued
            factors = _Factors(*product.shape, self.total.dtype)
            if self.factors is not None:
                factors.append(self.factors.left[: self.inner], self.factors.right[: self.inner])
        factors.append(product.left.T, product.right)
        return JoinedSum(self.total, factors)

    @cached_property
    def value(self) -> Any:
        """The sum."""
        if self.factors is None:
            return self.total
        left, right = self.factors.left[: self.inner], self.factors.right[: self.inner]
        result = multiply(left.T, right)
        return np.add(result, self.total, result)


def deferring(kernel: Kernel, node: Node) -> Kernel:
    """The kernel of a product of matrices that its reader computes if it is large."""
    transpose_a, transpose_b = node.attr("transpose_a"), node.attr("transpose_b")

    def defer(a: Any, b: Any) -> Any:
        if a.__class__ is b.__class__ is np.ndarray and a.ndim == b.ndim == _RANK:
            left, right = a.T if transpose_a else a, b.T if transpose_b else b
            is_large = len(left) * right.shape[1] >= _MIN_ELEMENTS
            if is_large and left.shape[1] == len(right) != 0:
                return DeferredProduct(left, right)
        return kernel(a, b)

    return defer


def slicing(kernel: Kernel, node: Node) -> Kernel:
    """The kernel of a slice, which indexes a deferred product like an array."""
    return kernel


def adding(kernel: Kernel, node: Node) -> Kernel:
    """The kernel of an addition that joins products with a short inner dimension."""

    def add(x: Any, y: Any) -> Any:
        total, product = (x, y) if isinstance(y, DeferredProduct) else (y, x)
        if not isinstance(product, DeferredProduct) or product.inner > _MAX_INNER:
            return kernel(evaluated(x), evaluated(y))
        if min(product.shape) < _MIN_SIDE or total.shape != product.shape:
            return kernel(evaluated(x), evaluated(y))
        return (total if isinstance(total, JoinedSum) else JoinedSum(total)).add(product)

    return add


# by the names in decompiled code
WRAPPERS: Final[dict[str, KernelWrapper]] = {
    wrapper.__name__: wrapper for wrapper in (adding, deferring, slicing)
}


def join_products(plans: Sequence[Plan]) -> None:
    """Replace the kernels of products that only a slice or the sum of a loop variable reads.

    GPUs compute each product where it is.
    """
    for plan in plans:
        for known in () if is_gpu(plan.device) else plan.nodes.values():
            if known.op.algebra.product_role == "computes":
                _defer_to_reader(plan, known)


def join_products_like(devices: Sequence[Plan], merged: Plan) -> None:
    """Replace the kernels in the merged plan of several devices that their plans have replaced.

    A merged plan has patterns that no device has: of messages it sees the edges.
    """
    models = {known.node.name: known for plan in devices for known in plan.nodes.values()}
    for node, known in merged.nodes.items():
        model = models.get(node.name)
        if model is not None and model.wrapper is not None:
            _replace_kernels({known: model.wrapper})
        elif model is not None and model.kernel is evaluated:
            known.kernel = evaluated


def _defer_to_reader(plan: Plan, product: NodePlan) -> None:
    reader = _only_reader(plan, product.node)
    if reader is None or product.node.attr("T").numpy not in (np.float32, np.float64):
        return
    role = reader.op.algebra.product_role
    if role == "slices" and reader.node.inputs[0].node is product.node:
        _replace_kernels({product: deferring, reader: slicing})
    is_sum = role == "adds" and len(reader.node.inputs) == _OPERANDS
    exits = _exits_of_sum(plan, reader.node) if is_sum else None
    if exits is not None:
        _replace_kernels({product: deferring, reader: adding})
        for node in exits:
            plan.nodes[node].kernel = evaluated


def _replace_kernels(changes: dict[NodePlan, KernelWrapper]) -> None:
    for known, wrapper in changes.items():
        known.kernel = wrapper(known.kernel, known.node)
        known.wrapper = wrapper


def _readers(plan: Plan, output: Output) -> list[Node]:
    """The nodes of the plan that read an output, also on other devices in a merged plan."""
    return [use.node for use in output.node.readers(output.port) if use.node in plan.nodes]


def _only_reader(plan: Plan, node: Node, port: int = 0) -> NodePlan | None:
    """The plan of the node on the same device that alone reads an output, which is not fetched."""
    output = Output(node, port)
    readers = _readers(plan, output)
    if len(readers) != 1 or output in plan.fetched:
        return None
    same_device = plan.device_of(readers[0]) == plan.device_of(node)
    return plan.nodes[readers[0]] if same_device else None


def _past_identities(plan: Plan, node: Node, port: int = 0) -> NodePlan | None:
    """The only reader of an output, or of the Identity that alone reads it, and so on."""
    reader = _only_reader(plan, node, port)
    while reader is not None and reader.kernel is identity and reader.op.role is None:
        reader = _only_reader(plan, reader.node)
    return reader


def _exits_of_sum(plan: Plan, addition: Node) -> list[Node] | None:
    """The Exits of a loop variable that each iteration adds to and does not read otherwise.

        Merge -> Switch -> Identity* -> addition -> Identity* -> NextIteration -> Merge
                 Switch -> Exit*

    None for any other addition.
    """
    back = _past_identities(plan, addition)
    if back is None or back.op.role is not NEXT_ITERATION:
        return None
    merge = _only_reader(plan, back.node)
    if merge is None or merge.op.role is not MERGE or _readers(plan, Output(merge.node, 1)):
        return None
    switch = _only_reader(plan, merge.node)
    if switch is None or switch.op.role is not SWITCH or switch.node.inputs[0].node != merge.node:
        return None
    again = _past_identities(plan, switch.node, 1)
    if again is None or again.node is not addition:
        return None
    exits = _readers(plan, Output(switch.node, 0))
    device = plan.device_of(addition)
    is_joined = all(
        plan.nodes[node].op.role is EXIT and plan.device_of(node) == device for node in exits
    )
    return exits if is_joined else None
