"""Results of `show` in its JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from cfgraph.analysis.loops.loop_state import LoopStateVariable
from cfgraph.analysis.partitions import DevicePartition, MessageRoute, SentTensor
from cfgraph.analysis.summary import LibraryFunctionSummary, Summary
from cfgraph.analysis.table_contents import TableContents
from cfgraph.console.documents import ModuleSummary
from cfgraph.console.views.saved_model_summary import SignatureReport
from cfgraph.console.views.show_tables import DeviceRow, FrameRow, NodeRow, OpRow
from cfgraph.console.views.shown_node import ShownNode
from cfgraph.reports import DocumentResult, Inline, Maybe, Record


class PartsReport(Record):
    """The parts of a partitioned graph."""

    devices: Sequence[DevicePartition]
    routes: Sequence[MessageRoute]
    tensors: Sequence[SentTensor]
    missing: Mapping[str, Sequence[str]]  #: Names received from each device without a part.


class ShownSummary(Record):
    """The summary of a graph, and what to do next."""

    summary: Inline[Summary]
    parts: Maybe[PartsReport]
    #: StableHLO modules, if there are any.
    modules: Maybe[Sequence[Annotated[ModuleSummary, "A StableHLO module that a node calls."]]]
    tables: Maybe[Sequence[TableContents]]
    signatures: Maybe[Sequence[SignatureReport]]
    suggestions: Maybe[Sequence[str]]
    next: str  #: A command to type next.


class ShownNodes(Record):
    """Nodes that were named."""

    nodes: Sequence[ShownNode]


class ShownSections(Record):
    """Sections that were named."""

    nodes: Maybe[Sequence[NodeRow]] = None
    ops: Maybe[Sequence[OpRow]] = None
    frames: Maybe[Sequence[FrameRow]] = None
    functions: Maybe[Sequence[LibraryFunctionSummary]] = None
    devices: Maybe[Sequence[DeviceRow]] = None
    modules: Maybe[Sequence[ModuleSummary]] = None
    variables: Maybe[Sequence[LoopStateVariable]] = None  #: With --loop, those of the loop.
    condition: Maybe[str] = None  #: With --loop, that with which the loop goes on.


class ShowResult(
    DocumentResult,
    command="show",
    title="What `cfgraph show --json` answers with: the summary, or the sections or the node that "
    "were asked for",
):
    """The summary, or the sections or the node that were requested."""

    summary_members: Inline[ShownSummary | None] = None
    node: Inline[ShownNodes | None] = None
    sections: Inline[ShownSections | None] = None
