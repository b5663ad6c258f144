"""A cluster that cluster calls run: its compilations by XLA, and the argument that changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Final

import numpy as np

from cfgraph.backends.xla.compile import CompiledFunction, TraceableFunction
from cfgraph.ir.dtypes import DType
from cfgraph.ir.function_graph import FunctionGraph
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ir.units import format_duration
from cfgraph.ops.families.tensor_list import ListGrowth
from cfgraph.runtime.straight_line import StraightLine

# constants with more elements are not described by their values
_MAX_CONSTANT_ELEMENTS: Final = 8

InputSignature = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Compilation:
    """One compilation of a cluster; `changed` describes the difference from the last signature.

    `refused` is the reason why it failed, `` if it succeeded; NumPy kernels run instead. With
    `is_stored` a cache had the executable.
    """

    cluster: str
    node: str
    seconds: float
    changed: str
    refused: str
    is_stored: bool = False

    def __str__(self) -> str:
        if self.refused:
            again = f", as {self.changed}" if self.changed else ""
            return f"{self.cluster} runs as one call of NumPy{again}: {self.refused}"
        time = format_duration(self.seconds * 1e9)
        stored = ", the executable was stored" if self.is_stored else ""
        if self.changed:
            return f"{self.cluster} recompiled in {time}, as {self.changed}{stored}"
        return f"{self.cluster} compiled in {time}{stored}"


@dataclass(slots=True)
class CompiledCluster:
    """A function that cluster calls run, and its statistics.

    `refused` is the reason why XLA cannot compile it. `fused` of the `calls` ran on NumPy kernels:
    nothing was compiled yet, or the cluster is `small`, or `stopped_compiling` after too many
    compilations. Concurrent runs count calls and compile under `lock`. `growths` counts the lengths
    of lists on NumPy kernels, by the node that makes one, and `lengths` has them by signature.
    """

    name: str
    function: FunctionGraph
    line: StraightLine
    traceable: TraceableFunction | None
    refused: str = ""
    calls: int = 0
    fused: int = 0
    small: bool = False
    stopped_compiling: bool = False
    compiled: dict[InputSignature, CompiledFunction | None] = field(default_factory=dict)
    seen: dict[InputSignature, None] = field(default_factory=dict)
    last: InputSignature | None = None
    # texts of the constant arguments at the last compilation
    last_constants: tuple[str, ...] = ()
    compilations: list[Compilation] = field(default_factory=list)
    growths: dict[Node, ListGrowth] = field(default_factory=dict)
    lengths: dict[InputSignature, Mapping[Node, int]] = field(default_factory=dict)
    lock: RLock = field(default_factory=RLock, repr=False)

    @property
    def has_effects(self) -> bool:
        """True if a node of the function is stateful."""
        return any(call.takes_step for call in self.line.calls)

    def count_call(self, *, fused: bool) -> None:
        """Count a call of the cluster; `fused` is true if its NumPy kernels ran."""
        with self.lock:
            self.calls += 1
            self.fused += fused

    @property
    def seconds(self) -> float:
        """The total time of all compilations."""
        return sum(value.seconds for value in self.compilations)

    @property
    def compiled_times(self) -> int:
        """The number of successful compilations."""
        return sum(not value.refused for value in self.compilations)

    def difference(self, current: InputSignature, call: Node, constants: Sequence[str]) -> str:
        """A description of the difference between the last compiled signature and another one.

        `call` has the inputs, and `constants` are the texts of the constant ones.
        """
        last = self.last
        if last is None or self.traceable is None:
            return ""
        names = [argument.name for argument in self.function.arguments]
        origins = [_origin(name, x) for name, x in zip(names, call.inputs, strict=False)]
        differences = list[str]()
        for name, origin, old, new in zip(names, origins, last[0], current[0], strict=False):
            if old != new:
                differences.append(f"{name} is {_shape_text(new)}, was {_shape_text(old)}{origin}")
        constant = sorted(self.traceable.constant)
        for number, index in enumerate(constant):
            if last[1][number] == current[1][number] or last[0][index] != current[0][index]:
                continue
            before, after = self.last_constants[number], constants[number]
            values = f"is {after}, was {before}" if before and after else "has another value"
            differences.append(f"constant {names[index]} {values}{origins[index]}")
        return "; ".join(differences) or "variables are shared differently"


def _origin(argument: str, tensor: Output) -> str:
    """The tensor that a call passes, in parentheses, unless it is named as the argument."""
    return "" if argument == tensor.node.name else f" ({tensor.name})"


def constant_text(value: Any) -> str:
    """The text of a small constant, else empty."""
    array = np.asarray(value)
    return str(array.tolist()) if array.size <= _MAX_CONSTANT_ELEMENTS else ""


def _shape_text(shape: Any) -> str:
    if len(shape) == len(("type", "shape")) and isinstance(shape[0], DType):
        return f"{shape[0]}{Shape(shape[1])}" if shape[1] is not None else "without a value"
    return str(Shape(shape))
