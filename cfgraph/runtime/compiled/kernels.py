"""Functions that generated code calls, other than kernels of pure nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from cfgraph.analysis.loops.frames import Frame
from cfgraph.errors import ExecutionError
from cfgraph.limits import iteration_limit_error
from cfgraph.ops.opdef.op import OpError
from cfgraph.runtime.engine.plan import NodePlan
from cfgraph.runtime.engine.references import dereference
from cfgraph.runtime.engine.step import RunStep

TRUE: Final = np.True_
_FALSE: Final = np.False_


class CompiledIteration:
    """The iteration in which a stateful node of generated code runs."""

    __slots__ = ("indices", "names")

    def __init__(self, names: tuple[str, ...], indices: tuple[int, ...]) -> None:
        self.names = names
        self.indices = indices

    @property
    def index(self) -> int:
        """The number of the iteration in its frame."""
        return self.indices[-1] if self.indices else 0

    @property
    def path(self) -> str:
        """The path of loops and iterations, `/while[3]/inner[0]`; `/` for the root."""
        pairs = zip(self.names, self.indices, strict=True)
        return "".join(f"/{name}[{index}]" for name, index in pairs) or "/"


def stateful_kernel(plan: NodePlan, frame: Frame) -> Callable[..., Any]:
    """The kernel of a stateful node, which takes the step, the iterations, and the inputs."""
    kernel, node = plan.kernel, plan.node
    names = frame_names(frame)

    def run(step: RunStep, indices: tuple[int, ...], *inputs: Any) -> Any:
        step.node = node
        step.iteration = CompiledIteration(names, indices)
        with step.state.lock:
            return kernel(step, *inputs)

    def run_call(step: RunStep, indices: tuple[int, ...], *inputs: Any) -> Any:
        step.node = node
        step.iteration = CompiledIteration(names, indices)
        return kernel(step, *inputs)

    return run_call if plan.op.calls.kind else run


def frame_names(frame: Frame) -> tuple[str, ...]:
    """The names of the loops from the outermost to this one."""
    names: list[str] = []
    current = frame
    while current.parent is not None:
        names.append(current.name)
        current = current.parent
    return tuple(reversed(names))


def test(predicate: Any) -> bool:
    """The branch of a Switch with two outputs. Raises OpError for a predicate with a shape."""
    if predicate is _FALSE:
        return False
    return branch(predicate, 2) == 1


def branch(predicate: Any, count: int) -> int:
    """The output that a Switch forwards to. Raises OpError for a predicate with a shape."""
    if predicate.ndim:
        raise OpError(f"the predicate must be a scalar, but it has shape {list(predicate.shape)}")
    index = int(predicate)
    return index if 0 <= index < count else count - 1


def merge_index(slot: int) -> Any:
    """The second output of a Merge."""
    return np.int32(slot)


def exceeded(step: RunStep, name: str) -> ExecutionError:
    """The error of a loop that exceeds the iteration limit."""
    assert step.max_iterations is not None
    return iteration_limit_error(name, step.max_iterations)


# the names that generated code may use in addition to its own constants
FUNCTIONS: Final[dict[str, Any]] = {
    "__builtins__": {},
    "TRUE": TRUE,
    "test": test,
    "branch": branch,
    "deref": dereference,
    "exceeded": exceeded,
}
