"""What became of a node in one run: how often it ran, and what killed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cfgraph.analysis.inputs import require_feeds
from cfgraph.errors import ExecutionError
from cfgraph.ir import registry
from cfgraph.ir.graph import Graph, Node
from cfgraph.runtime.session import Session
from cfgraph.runtime.trace import TraceEvent


@dataclass
class Fate:
    """An observer that counts a node's live and dead tokens; `why` says what killed its output."""

    name: str
    live: int = 0
    dead: int = 0
    why: str = ""
    fed: bool = False

    def event(self, event: TraceEvent) -> None:
        """Take one event of a run."""
        if event.is_token and event.node == self.name:
            self.dead += event.dead
            self.live += not event.dead

    @property
    def words(self) -> str:
        """How often the node ran."""
        if self.fed:
            return "it is fed"
        if not self.live and not self.dead:
            return "it got no token: what it waits for did not run"
        if not self.live:
            return "dead" if self.dead == 1 else f"dead, {self.dead} times"
        ran = "it ran" if self.live == 1 else f"it ran {self.live} times"
        return ran + (f", and was dead {self.dead} times" if self.dead else "")

    def to_json(self) -> dict[str, Any]:
        """The member `run` of the document."""
        return {"live": self.live, "dead": self.dead, "why": self.why or None}


def fate_of(
    graph: Graph, node: Node, *, in_root: bool, feeds: Mapping[str, Any], max_iterations: int
) -> Fate:
    """Run a graph for one node. Raises what a run raises, of a run that hangs where it hangs."""
    fed = {graph.tensor(name) for name in feeds}
    fate = Fate(node.name, fed=any(item.node is node for item in fed))
    require_feeds(graph, [], [node], fed)
    session = Session(graph, soft_placement=True)
    session.run([], feeds, [node.name], trace=fate, max_iterations=max_iterations)
    if in_root and fate.dead and not fate.live and registry.output_count(node):
        try:
            Session(graph, soft_placement=True).run([f"{node.name}:0"], feeds)
        except ExecutionError as error:
            fate.why = error.message
    return fate
