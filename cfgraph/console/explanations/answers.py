"""Answers of `explain` in its JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cfgraph.analysis.explain import Explanation, UnconditionalWork
from cfgraph.analysis.findings import Code
from cfgraph.analysis.loops.loop_state import LoopStateVariable
from cfgraph.analysis.message_pages import MessagePage
from cfgraph.analysis.table_contents import TableContents
from cfgraph.console.documents import CompilationReport, Module
from cfgraph.reports import (
    Count,
    DocumentResult,
    Keywords,
    Maybe,
    Real,
    Record,
    Unrequired,
)


class CycleItem(Record):
    """A node of a critical cycle."""

    name: str
    ns: Real


class BusiestDevice(Record):
    """The device that is busy for the largest share of a run."""

    device: str
    share: Real


class IterationsReport(Record):
    """The iterations of a run in virtual time."""

    iterations: Count
    period_ns: Real | None
    at_once: Real
    busiest: BusiestDevice | None


class LoopReport(Record):
    """A loop and its critical cycle."""

    frame: str
    critical_cycle: Sequence[CycleItem]
    iterations_of_the_cycle: Count
    cycle_ns: Real
    work_ns: Real
    share: Real
    parallel_iterations: Count
    verdict: str
    run: IterationsReport | None
    #: The node that calls the functions of the loop; null for a loop of primitives.
    node: Maybe[str]
    condition: Maybe[str]  #: The expression of its variables with which it goes on.
    #: The iterations, if the graph decides them; a bound if data may end the loop earlier.
    trip_count: Maybe[Count]
    trip_count_is_exact: Maybe[bool]
    variables: Sequence[LoopStateVariable]


class FunctionResults(Record):
    """The function of a node, and the results that the node computes."""

    name: str
    results: Sequence[str]


class SourceLine(Record):
    """A line of a Python file, and the node in its comment."""

    path: str
    line: int
    text: str
    node: str  #: The node that the line computes; the explained node forwards its value.


class NodeRunReport(Record):
    """The liveness of a node in a run, and the reason."""

    live: bool | int | None
    dead: bool | int | None
    why: str | None
    #: Those by XLA of a cluster that the node calls.
    compilations: Maybe[Sequence[CompilationReport]] = None


class NodeReport(Explanation):
    """A node and, if it was run, how."""

    run: Unrequired[NodeRunReport | None]  #: What became of it in a run.
    #: Of a predicate: what was made outside of its branches and runs whatever it is.
    decides: Maybe[UnconditionalWork]
    implementation: Maybe[str]  #: The function that a call runs, of several implementations.
    #: The function that has the node, and the results that the node computes.
    function: Annotated[Maybe[FunctionResults], Keywords(additionalProperties=False)]
    source: Maybe[SourceLine]  #: With --source, the line of the Python file.
    module: Maybe[Module]
    table: Maybe[TableContents]  #: The lookup table that it uses.


class PairReport(Record):
    """Relation of a tensor and a node: frames, gradient, and cluster, each described in words."""

    source: str
    target: str
    frames: str | None
    gradient: str | None
    cluster: str | None


class CrossingReport(Record):
    """An edge between different frames."""

    source: str  #: The tensor, or ^node of a control edge.
    reader: str
    source_frame: str
    reader_frame: str
    instead: str | None  #: The tensor to read instead, if the graph has one.
    advice: str


class CrossingsReport(Record):
    """The edges between different frames at a node or a loop."""

    subject: str
    edges: Sequence[CrossingReport]


class ExplainResult(DocumentResult, command="explain"):
    """The answer: about a code, a node, a loop, a pair, edges between frames, or a module."""

    code: Maybe[Code] = None
    message: Maybe[MessagePage] = None  #: The page about an error text of TensorFlow.
    node: Maybe[NodeReport] = None
    loop: Maybe[LoopReport] = None
    pair: Maybe[PairReport] = None
    #: Of an invalid graph: its edges between different frames.
    crossings: Maybe[CrossingsReport] = None
    module: Maybe[Module] = None
