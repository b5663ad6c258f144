"""The tensors that a run feeds and fetches, by name, also in graphs that were cut for one run.

TensorFlow puts an `_Arg` or `_Retval` with an index, or a transfer that ends at the client, in the
place of what a run feeds and fetches. They are found by the names of the tensors that they stand
for, and by their index.
"""

from __future__ import annotations

from cfgraph.analysis.transfers import key_of
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import split_tensor_name
from cfgraph.ir.walk import Roles


def fed_tensor(graph: Graph, name: str) -> Output:
    """The tensor to feed under a name. Raises UsageError where there is none."""
    return _tensor(graph, name, ("arg", "recv"), "_arg_")


def fetched_tensor(graph: Graph, name: str) -> Output:
    """The tensor to fetch under a name. Raises UsageError where there is none."""
    return _tensor(graph, name, ("retval", "send"), "_retval_")


def _tensor(graph: Graph, name: str, wanted: tuple[str, str], prefix: str) -> Output:
    try:
        return graph.tensor(name)
    except UsageError:
        found = _stands_for(graph, name, wanted, prefix)
        if found is None:
            raise
        return found.inputs[0] if found.inputs else Output(found, 0)


def _stands_for(graph: Graph, name: str, wanted: tuple[str, str], prefix: str) -> Node | None:
    """The `_Arg`, `_Retval` or transfer to the client of a tensor, of an index or of that name."""
    base, port = split_tensor_name(name)
    indexed, client = wanted
    roles = Roles()
    for node in graph:
        role = roles[node.op]
        if role == indexed:
            index = node.attrs.get("index")
            if name in (node.name, str(index)) or node.name == f"{prefix}{base}_{port}_{index}":
                return node
        elif role == client and node.attrs.get("client_terminated"):
            tensor = key_of(node).tensor_name
            if tensor in (name, f"{base}:{port}"):
                return node
    return None
