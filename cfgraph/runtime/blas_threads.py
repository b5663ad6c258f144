"""Number of threads of the BLAS library: limited around runs, or chosen for the own process.

OpenBLAS divides even small products among all cores, and its threads wait busily for each other: on
a loaded machine a small product takes ten times as long with two threads as with one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from threading import Lock
from typing import Any, Final

from cfgraph.blas_environment import is_chosen_by_user, starts_with_one_thread
from cfgraph.errors import UsageError
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.opdef.op import is_product, lookup
from cfgraph.ops.shape_inference import infer_shapes
from cfgraph.runtime.engine.plan import Plan

AUTO: Final = "auto"
# a thread more for each of these: about 5 ms of one core
FLOPS_PER_THREAD: Final = 5e8
# no product of FLOPS_PER_THREAD has three smaller matrices
_LARGE_MATRIX: Final = int((FLOPS_PER_THREAD / 2) ** (2 / 3))

_lock = Lock()
_active: list[int] = []
_before: list[tuple[Any, int]] = []


def checked_threads(count: int | str | None) -> int | str | None:
    """A number of threads, `auto`, or None. Raises UsageError for anything else."""
    is_number = isinstance(count, int) and not isinstance(count, bool) and count > 0
    if count is None or count == AUTO or is_number:
        return count
    message = f"blas_threads must be a positive number or auto, got {count!r}"
    raise UsageError(message, hint="a number of threads, or auto")


def auto_threads(graph: Graph, plans: Sequence[Plan], feeds: Mapping[Output, Any]) -> int | None:
    """The number of threads to set for a run by its products; None if it stays unchanged."""
    nodes = [node for plan in plans for node in plan.nodes]
    if is_chosen_by_user() or not any(map(is_product, nodes)):
        return None
    chosen = chosen_threads(graph, nodes, feeds)
    return None if chosen == 1 and starts_with_one_thread() else chosen


def chosen_threads(graph: Graph, nodes: Sequence[Node], feeds: Mapping[Output, Any]) -> int:
    """The number of threads for the largest product among the nodes, at most one per core.

    A product of unknown size counts as small.
    """
    if not _has_large_source(nodes, feeds):
        return 1
    shapes = infer_shapes(graph, {output.name: value for output, value in feeds.items()})
    most = 0.0
    for node in filter(is_product, nodes):
        inputs = [shapes[output].dims for output in node.inputs]
        outputs = [shape.dims for shape in shapes.node_shapes(node)]
        op = lookup(node.op)
        if op is None or any(dims is None or None in dims for dims in (*inputs, *outputs)):
            continue
        most = max(most, op.flops(inputs, outputs))  # type: ignore[arg-type]
    return max(1, min(_processors(), int(most / FLOPS_PER_THREAD)))


def _processors() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS, Windows


def _has_large_source(nodes: Sequence[Node], feeds: Mapping[Output, Any]) -> bool:
    """True if a feed, constant, or variable is as large as a matrix of a large product."""
    if any(getattr(value, "size", 0) >= _LARGE_MATRIX for value in feeds.values()):
        return True
    shapes = (_declared_shape(node) for node in nodes if not node.inputs)
    return any((shape.elements or 0) >= _LARGE_MATRIX for shape in shapes)


def _declared_shape(node: Node) -> Shape:
    """The shape of a constant or a variable, by its attributes."""
    value = node.attrs.get("value")
    shape = value.shape if isinstance(value, TensorValue) else node.attrs.get("shape")
    return shape if isinstance(shape, Shape) else UNKNOWN_SHAPE


def leave_a_core() -> AbstractContextManager[None]:
    """Set a thread less than there are cores, for a run beside a process that needs one.

    A number that is set already, by the user or for a run, stays.
    """
    if is_chosen_by_user() or starts_with_one_thread() or _active:
        return nullcontext()
    return limited_threads(max(1, _processors() - 1))


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Set the number of threads; restore it when the last of several concurrent uses ends.

    During concurrent uses, the number is that of the latest.
    """
    with _lock:
        libraries = _blas_libraries("scipy.linalg" in sys.modules)
        if not _active:
            _before[:] = [(library, library.get_num_threads()) for library in libraries]
        _active.append(count)
        _set_threads(count)
    try:
        yield
    finally:
        with _lock:
            _active.remove(count)
            if _active:
                _set_threads(_active[-1])
            else:
                for library, threads in _before:
                    library.set_num_threads(threads)


def _set_threads(count: int) -> None:
    for library, _ in _before:
        library.set_num_threads(count)


@lru_cache(maxsize=2)
def _blas_libraries(with_scipy: bool) -> list[Any]:
    """The loaded BLAS libraries; SciPy loads its own."""
    from threadpoolctl import ThreadpoolController

    found: list[Any] = ThreadpoolController().select(user_api="blas").lib_controllers
    return found
