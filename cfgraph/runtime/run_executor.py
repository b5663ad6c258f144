"""The protocol of an executor of one run, and its part of the report of the run."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, Protocol

from cfgraph.ir.graph import Output
from cfgraph.ir.names import first_names
from cfgraph.reports import Maybe, Record
from cfgraph.runtime.engine.quiescent_state import QuiescentState
from cfgraph.runtime.engine.step import RunStep


class ExecutorReport(Protocol):
    """A part of the report of a run that an engine adds.

    `member` is its name in a JSON document. One that `explains` is shown with `--explain-engine`.
    """

    member: ClassVar[str]
    explains: ClassVar[bool]

    def to_json(self) -> Any:
        """The value of the member."""

    def notes(self) -> list[str]:
        """Lines for a person."""


# ops that a note lists
_MAX_HOST_OPS: Final = 5


class GpuReport(Record):
    """The GPUs of a run: `name` is that of real ones, whose ops `on_host` have no kernel there."""

    member: ClassVar[str] = "gpu"
    explains: ClassVar[bool] = False

    kind: Literal["simulated", "real"]
    devices: Sequence[str]
    name: Maybe[str] = None
    on_host: Maybe[Mapping[str, str]] = None

    def notes(self) -> list[str]:
        """Describe kind and devices."""
        devices = ", ".join(self.devices)
        if not self.name:
            return [f"{devices}: simulated by NumPy"]
        notes = [f"{devices}: {self.name}"]
        if self.on_host:
            names = first_names(sorted(self.on_host), _MAX_HOST_OPS)
            notes.append(f"run on the host, no GPU kernel: {names}")
        return notes


class RunExecutor(Protocol):
    """An engine with the state of one run: a driver, or generated code."""

    results: list[Any]
    step: RunStep
    run_start: int
    elapsed: float | None
    allow_dead: bool  # a dead fetch is no error of this run
    fallback: str  # the reason why generated code was not used in this run, or empty
    is_interpreted: bool  # the run needed no generated code
    is_generated: bool  # generated code runs it, whatever the reason of the plan for tokens

    @property
    def stopped(self) -> bool:
        """True if the run ended early, as it was to: fetches may have no value."""

    @property
    def fetches(self) -> tuple[Output, ...]:
        """The fetched tensors, in the graph of `quiescent_state`."""

    def run(self, feeds: Sequence[Any], pick: random.Random | None) -> None:
        """Run until nothing is ready."""

    def clear(self) -> None:
        """Drop the values of the run."""

    def quiescent_state(self) -> QuiescentState:
        """The state of the run for explanations."""

    def fetched_to_host(self, index: int, value: Any) -> Any:
        """The value of a fetch in host memory."""

    def reports(self) -> list[ExecutorReport]:
        """The parts that the engine adds to the report of a run."""
