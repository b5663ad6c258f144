"""Failed kernels are described by op, types, shapes, and names, not in the words of NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Node
from cfgraph.ops.opdef.kernel_errors import kernel_error
from cfgraph.ops.opdef.op import KERNEL_FAILURES, OpError, lookup
from tests.ops.harness import Case, LocalStep, all_cases, node_of

# phrases of NumPy, SciPy, and Python
FOREIGN = re.compile(
    r"operand|remapped|gufunc|core dimension|cannot reshape|out of bounds for axis|all the input"
    r"|array at index|could not broadcast|broadcastable|sequence|iterable|numpy|ufunc|argument"
    r"|array\(|ndarray|object of type|subscript|truth value|unpack|scalar index|zip\(|einsum"
    r"|tuple index|list index|hashable|attribute|not supported between|negative dimensions"
)


def described(node: Node, *inputs: Any) -> OpError:
    """The error of a node whose kernel fails for these inputs."""
    op = lookup(node.op)
    assert op is not None
    with pytest.raises(KERNEL_FAILURES) as caught, np.errstate(all="ignore"):
        op.bind(node, np)(*inputs)
    return kernel_error(caught.value, node, inputs)


def graph_of(text: str) -> cfgraph.Graph:
    return cfgraph.loads(text.encode())


def test_shapes_that_do_not_fit_are_named() -> None:
    graph = graph_of(
        "x = Placeholder() {dtype=float32}\n"
        "y = Placeholder() {dtype=float32, shape=[2,4]}\n"
        "copy = Identity(y)\n"
        "sum = AddV2(x, copy)\n"
    )
    error = described(graph["sum"], np.zeros((2, 3), "f"), np.zeros((2, 4), "f"))
    expected = "AddV2: shapes float32[2,3] (x) and float32[2,4] (copy) do not broadcast"
    assert error.message == expected
    assert error.hint == "copy has the shape of y, a Placeholder of shape [2,4]"


def test_equal_shapes_are_named_in_order() -> None:
    graph = graph_of(
        "c = Placeholder() {dtype=bool}\nx = Placeholder() {dtype=float32}\nz = SelectV2(c, x, x)"
    )
    values = np.zeros(2, bool), np.zeros(3, "f"), np.zeros(3, "f")
    message = described(graph["z"], *values).message
    assert message == "SelectV2: shapes bool[2] (c) and float32[3] (x) do not broadcast"


def test_all_inputs_are_listed_if_a_shape_is_of_none_of_them() -> None:
    graph = graph_of(
        "x = Placeholder() {dtype=float32}\ny = Placeholder() {dtype=float32}\n"
        "z = BatchMatMulV2(x, y)"
    )
    values = np.zeros((3, 2, 2), "f"), np.zeros((2, 2, 2), "f")
    assert described(graph["z"], *values).message == (
        "BatchMatMulV2: shapes [3] and [2] do not broadcast; inputs float32[3,2,2] (x), "
        "float32[2,2,2] (y)"
    )


def test_inputs_and_small_values_are_listed_where_shapes_fit() -> None:
    graph = graph_of(
        "x = Placeholder() {dtype=float32}\ny = Placeholder() {dtype=int32}\n"
        "z = HistogramFixedWidth(x, x, y) {dtype=int32}"
    )
    error = kernel_error(
        ValueError("of NumPy"), graph["z"], [np.zeros((3, 3), "f"), np.zeros(2, "f"), np.int32(5)]
    )
    assert error.message == (
        "HistogramFixedWidth: the inputs do not fit: float32[3,3] (x), "
        "float32[2] = [0.0, 0.0] (x), int32[] = 5 (y)"
    )


def test_the_text_of_numpy_in_a_shape_function_is_dropped() -> None:
    graph = graph_of("x = Placeholder() {dtype=float32}\nz = Range(x, x, x)")
    message = described(graph["z"], *[np.float32(np.nan)] * 3).message
    values = ", ".join(["float32[] = nan (x)"] * 3)
    assert message == f"Range: the inputs do not fit: {values}"


def test_unknown_inputs_are_named() -> None:
    graph = graph_of("x = Placeholder() {dtype=float32}\nz = AddV2(x, x)")
    assert kernel_error(ValueError("of NumPy"), graph["z"]).message == (
        "AddV2: the inputs do not fit: x, x"
    )


def test_lack_of_memory_names_the_array() -> None:
    graph = graph_of("x = Placeholder() {dtype=float32}\nz = AddV2(x, x)")
    with pytest.raises(MemoryError) as caught:
        np.empty((1 << 20, 1 << 20, 3))
    message = kernel_error(caught.value, graph["z"]).message
    assert message == "AddV2: out of memory: an array float64[1048576,1048576,3] takes 24 TiB"


def variants(array: np.ndarray) -> Iterator[np.ndarray]:
    """Arrays of other shapes and values."""
    if array.dtype == object:
        yield array.reshape((*array.shape, 1))
        return
    dims = array.shape
    yield np.zeros((*dims[:-1], dims[-1] + 1) if dims else (2,), array.dtype)
    yield np.zeros((dims[0] + 1, *dims[1:]) if dims else (3, 1), array.dtype)
    yield array.reshape((*dims, 1))
    yield array[None]
    if dims:
        yield array[:0]
        yield array.reshape(-1)
    if array.size:
        yield array.reshape(-1)[0]
    if array.dtype.kind in "iu":
        yield np.full_like(array, 100)
        yield np.full_like(array, -100 if array.dtype.kind == "i" else 77)
    if array.dtype.kind == "f":
        yield np.full_like(array, np.nan)


def changed_cases() -> Iterator[Case]:
    """Cases of each op with one changed input."""
    count: dict[str, int] = {}
    for case in all_cases():
        count[case.op] = count.get(case.op, 0) + 1
        if count[case.op] > 2 or sum(array.size for array in case.inputs) > 2000:
            continue
        for slot, array in enumerate(case.inputs):
            for variant in variants(array):
                inputs = list(case.inputs)
                inputs[slot] = np.asarray(variant)
                yield replace(case, inputs=tuple(inputs), place=[])


def failure(case: Case) -> tuple[Node, Exception, list[Any]] | None:
    """The node, error, and inputs of a case whose kernel fails in Python or NumPy."""
    op = lookup(case.op)
    assert op is not None
    inputs = [array if array.ndim or array.dtype == object else array[()] for array in case.inputs]
    try:
        node = node_of(case)
        run: Callable[..., Any] = op.prepare(node, np) if op.effects.stateful else op.bind(node, np)
    except (CfgraphError, *KERNEL_FAILURES):
        return None
    try:
        with np.errstate(all="ignore"):
            run(LocalStep(), *inputs) if op.effects.stateful else run(*inputs)
    except CfgraphError:
        return None
    except KERNEL_FAILURES as error:
        return node, error, inputs
    except Exception:  # other types of errors are faults of kernels, which other tests find
        return None
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_no_message_quotes_numpy(every: int) -> None:
    quoted, found = [], 0
    for case in islice(changed_cases(), 0, None, every):
        failed = failure(case)
        if failed is None:
            continue
        node, error, inputs = failed
        found += 1
        text = kernel_error(error, node, inputs).message
        shown = re.sub(r"\((?:x\d+)\)", "", text)
        if FOREIGN.search(shown) or (str(error) and str(error) in text):
            quoted.append((case.label, text))
    assert quoted == []
    assert found > 100
