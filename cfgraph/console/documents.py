"""Parts of JSON documents that several commands share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from cfgraph.errors import ErrorReport
from cfgraph.reports import Count, Inline, Maybe, Real, Record, Unrequired

Warnings = Annotated[Sequence[str], "What a person should know of the result."]


class OpChange(Record):
    """The numbers of nodes of an op before and after a pass."""

    op: str
    before: Count
    after: Count


OpChanges = Annotated[Sequence[OpChange], "The ops whose number changed."]


class Statistics(Record):
    """The finite elements of a value, and the numbers of the others."""

    min: Maybe[Real] = None
    max: Maybe[Real] = None
    mean: Maybe[Real] = None
    nan: Maybe[Count] = None
    inf: Maybe[Count] = None


class ValueReport(Record):
    """A tensor's value."""

    dtype: str
    shape: Sequence[Count]
    data: Maybe[Any] = None  #: Nested lists of elements; complex ones are lists of two numbers.
    elided: Maybe[bool] = None  #: True where the elements are too many; --full gives them.
    computed: Maybe[bool] = None  #: False where the run did not compute the value.
    statistics: Inline[Statistics | None] = None


class CompilationReport(Record):
    """A compilation of a cluster by XLA."""

    seconds: Real
    changed: str | None  #: The arguments that differ from the compilation before.
    refused: str | None


class ChangeReport(Record):
    """A part of a node that differs; null for what one side does not have."""

    part: str  #: op, device, input I, control, attr KEY, …
    before: str | None
    after: str | None


class NamedNode(Record):
    """A node of one graph."""

    node: str
    op: str


class ChangedNodeReport(Record):
    """A node of two graphs."""

    node: str  #: Its name in the first graph.
    now: str  #: Its name in the second one.
    op: str
    changes: Sequence[ChangeReport]


class NodesReport(Record):
    """The comparison of nodes."""

    added: Sequence[NamedNode]
    removed: Sequence[NamedNode]
    changed: Sequence[ChangedNodeReport]
    renamed: Mapping[str, str]
    reordered: bool


class ChangedFunctionReport(Record):
    """A function of two graphs."""

    name: str
    changes: Sequence[ChangeReport]
    nodes: Inline[NodesReport]


class FunctionsReport(Record):
    """The comparison of the functions of two graphs."""

    added: Sequence[str]
    removed: Sequence[str]
    changed: Sequence[ChangedFunctionReport]


class StructureReport(Record):
    """The comparison of the nodes of two graphs."""

    equal: bool
    nodes: Inline[NodesReport]
    functions: FunctionsReport
    changes: Sequence[ChangeReport]  #: What concerns the whole graph.


class DifferenceReport(Record):
    """Two values that differ."""

    what: str  #: A tensor, or `variable NAME`.
    message: str
    a: ValueReport | None
    b: ValueReport | None


class DivergenceReport(Record):
    """The first wrong node."""

    node: str
    op: str
    frame: str  #: The path of loops with the iteration of each; / outside of loops.
    iteration: Count
    port: Count | None
    message: str
    a: ValueReport | None
    b: ValueReport | None
    changes: Sequence[ChangeReport]  #: What differs about this node in the graphs.


class RunsReport(Record):
    """The comparison of the runs of two graphs."""

    equal: bool
    cases: Count  #: The points at which both ran; the last one is the one that differs.
    fetches: Sequence[str]  #: What was compared.
    not_in_b: Sequence[str]  #: Outputs that the second graph does not have, which is a difference.
    #: Fetches, and targets as `^NAME`, that depend on accesses in no defined order.
    not_compared: Unrequired[Sequence[str]]
    #: Fetches that have no value in either graph, in no case, which is agreement.
    no_value: Unrequired[Sequence[str]]
    #: The tensor of the second graph for each input and output that has another name there.
    paired: Unrequired[Mapping[str, str]]
    #: What makes the comparison say less, such as variables that only one graph has values of.
    warnings: Unrequired[Sequence[str]]
    #: Functions of the first graph were lowered to be run, since calls of them cannot be.
    lowered: bool
    differences: Sequence[DifferenceReport]
    failure: ErrorReport | None
    first: DivergenceReport | None  #: The first wrong node.
    inputs: Mapping[str, ValueReport]  #: What was fed where they differ.
    #: The options that repeat the case that differs: `--feed` of each input, or `--feeds` and a
    #: file.
    case: Unrequired[str | None]


class ModulePart(Record):
    """A function, loop, or conditional of a module; `operations` includes no regions."""

    name: str
    kind: str  #: function, while, case, or if.
    types: str
    operations: Maybe[Count] = None  #: Of a function, outside of its loops and branches.


class ModuleSummary(Record):
    """The parts of the module of a node, or the reason why they are unknown."""

    node: str  #: The node, with its function.
    parts: tuple[ModulePart, ...] = ()
    reason: str | None = None  #: Why the parts are unknown.


class ModuleReport(Record):
    """The parts of a module, and its text."""

    summary: Inline[ModuleSummary]
    text: Unrequired[str]  #: The first lines, or all with --full.
    lines: Unrequired[Count]  #: The lines of the whole text.


Module = Annotated[ModuleReport, "A StableHLO module that a node calls."]
