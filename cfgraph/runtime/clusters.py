"""What is kept of each cluster that runs: its calls, what it was compiled for, and why again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cfgraph.ir.dtypes import DType
from cfgraph.ir.function_graph import FunctionGraph
from cfgraph.ir.shapes import Shape
from cfgraph.ir.units import format_duration
from cfgraph.ops.evaluate import StraightLine
from cfgraph.runtime.compiled import Compiled, Traceable

Signature = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Compilation:
    """One compilation of a cluster; `changed` says what differs from the signature before.

    `refused` is why it was not to be had, and the fused call stands for it; `` where it was.
    """

    cluster: str
    node: str
    seconds: float
    changed: str
    refused: str

    def __str__(self) -> str:
        again = f", as {self.changed}" if self.changed else ""
        if self.refused:
            return f"{self.cluster} runs as one call of NumPy{again}: {self.refused}"
        return f"{self.cluster} compiled in {format_duration(self.seconds * 1e9)}{again}"


@dataclass(slots=True)
class Cluster:
    """A function that launches call, and how it ran so far.

    `refused` is why XLA cannot have it. `fused` of the `calls` ran as one call of NumPy kernels:
    as nothing was compiled yet, or it was `small`, or `given_up` after too many compilations.
    """

    name: str
    function: FunctionGraph
    line: StraightLine
    traceable: Traceable | None
    refused: str = ""
    calls: int = 0
    fused: int = 0
    small: bool = False
    given_up: bool = False
    compiled: dict[Signature, Compiled | None] = field(default_factory=dict)
    seen: dict[Signature, None] = field(default_factory=dict)
    last: Signature | None = None
    compilations: list[Compilation] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The time that all compilations took."""
        return sum(item.seconds for item in self.compilations)

    @property
    def compiled_times(self) -> int:
        """How often it was compiled."""
        return sum(not item.refused for item in self.compilations)

    def difference(self, now: Signature) -> str:
        """What differs between the last signature that was compiled and another one, in words."""
        before = self.last
        if before is None or self.traceable is None:
            return ""
        arguments, told = self.function.arguments, list[str]()
        for argument, old, new in zip(arguments, before[0], now[0], strict=False):
            if old != new:
                told.append(f"{argument.name} is {_words(new)}, was {_words(old)}")
        constant = sorted(self.traceable.constant)
        for place, old, new in zip(constant, before[1], now[1], strict=True):
            if old != new and before[0][place] == now[0][place]:
                told.append(f"constant {arguments[place].name} has another value")
        return "; ".join(told) or "variables are shared otherwise"


def _words(shape: Any) -> str:
    if len(shape) == len(("type", "shape")) and isinstance(shape[0], DType):
        return f"{shape[0]}{Shape(shape[1])}" if shape[1] is not None else "without a value"
    return str(Shape(shape))
