"""Extension of Model Explorer: an adapter for graphs, and providers of data per node.

    model-explorer --extensions=cfgraph.model_explorer model.pb

Model Explorer loads this module and registers its classes. The data fit its own view of a GraphDef
too: liveness conditions and critical cycles of the file that is open, in a few clicks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import model_explorer as me
from dacite import Config, from_dict

import cfgraph
from cfgraph.console.views.selection import GraphView
from cfgraph.errors import DOCUMENTATION, CfgraphError
from cfgraph.integrations.model_explorer.explain_data import critical_cycles_values, liveness_values
from cfgraph.integrations.model_explorer.graph_json import graph_collection
from cfgraph.integrations.model_explorer.identifiers import graph_members
from cfgraph.integrations.model_explorer.node_data import Values, node_data

_SUFFIXES: Final = ["pb", "pbtxt", "graphdef", "graph", "gz"]
_ADAPTERS: Final = ["builtin_graphdef", "cfgraph"]
_LIVENESS: Final = "cfgraph_liveness"
_CYCLES: Final = "cfgraph_critical_cycles"


def _provider(id: str, name: str, description: str) -> Any:
    conditions = me.NodeDataProviderFilter(modelFileExts=_SUFFIXES, adapterIds=_ADAPTERS)
    return me.NodeDataProviderMetadata(
        id=id, name=name, description=description, source_repo=DOCUMENTATION, filter=conditions
    )


class CfgraphAdapter(me.Adapter):  # type: ignore[misc]  # an optional package
    """Adapter with loops and functions as subgraphs, and overlays."""

    metadata = me.AdapterMetadata(
        id="cfgraph",
        name="cfgraph adapter",
        description="Loops and function bodies as subgraphs; critical cycles, messages, dead paths",
        source_repo=DOCUMENTATION,
        fileExts=_SUFFIXES,
    )

    def convert(self, model_path: str, settings: Mapping[str, Any]) -> Any:
        """The graphs of a file, for Model Explorer."""
        graphs = graph_collection(GraphView(cfgraph.load(model_path)), model_path)["graphs"]
        return {"graphs": [from_dict(me.graph_builder.Graph, graph) for graph in graphs]}


class CfgraphNodeData(me.NodeDataProvider):  # type: ignore[misc]  # an optional package
    """Providers of liveness conditions and of critical cycles."""

    metadata: ClassVar[Any] = [
        _provider(_LIVENESS, "cfgraph: liveness", "The condition under which each node runs"),
        _provider(_CYCLES, "cfgraph: critical cycles", "Estimated ns of nodes that limit loops"),
    ]

    def get_config_editors(self, provider_id: str) -> Any:
        """No settings."""
        return me.GetConfigEditorsResult(configEditors=[])

    def run(
        self,
        provider_id: str,
        model_path: str,
        graph_id: str,
        config_values: Mapping[str, Any],
        graph: Any = None,
    ) -> Any:
        """The data of one graph of a file, or the message of an error."""
        try:
            data = _data_by_graph(provider_id, model_path).get(graph_id)
        except CfgraphError as error:
            return me.NodeDataProviderResult(error=str(error))
        if data is None:
            message = f"no data for {graph_id!r}: they exist for the main graph and its loops"
            return me.NodeDataProviderResult(error=message)
        # the class says numbers, and the page shows texts too
        unchecked = Config(check_types=False)
        result = from_dict(me.node_data_builder.GraphNodeData, data, unchecked)
        return me.NodeDataProviderResult(result=result)


def _data_by_graph(provider: str, path: str) -> dict[str, Any]:
    loaded = cfgraph.load(path)
    values: Values = liveness_values(loaded)
    title = "liveness"
    if provider == _CYCLES:
        values, title = critical_cycles_values(loaded), "critical cycle (ns)"
    return node_data(graph_members(loaded), values, title)
