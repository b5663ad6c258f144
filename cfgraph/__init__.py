"""Dataflow graphs with control flow: look at them, check, transform and run them.

Files         load, save, loads, dumps
Write one     Builder; Graph, with its Node and Output, is what all else takes
Change it     lower, gradients, place, partition, cluster: in place, and each tells what it did
Run it        Session; restore for a SavedModel's variables; CostModel, read_costs for virtual time
Judge it      check, diff
What fails    CfgraphError, and below it UsageError, InvalidInput, Unsupported, ExecutionError and
              RunTimeout
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cfgraph.analysis.check import check as check
    from cfgraph.build.builder import Builder as Builder
    from cfgraph.compare.diff import diff as diff
    from cfgraph.errors import CfgraphError as CfgraphError
    from cfgraph.errors import ExecutionError as ExecutionError
    from cfgraph.errors import InvalidInput as InvalidInput
    from cfgraph.errors import RunTimeout as RunTimeout
    from cfgraph.errors import Unsupported as Unsupported
    from cfgraph.errors import UsageError as UsageError
    from cfgraph.ir.files import dumps as dumps
    from cfgraph.ir.files import load as load
    from cfgraph.ir.files import loads as loads
    from cfgraph.ir.files import save as save
    from cfgraph.ir.graph import Graph as Graph
    from cfgraph.ir.node import Node as Node
    from cfgraph.ir.node import Output as Output
    from cfgraph.passes.cluster.cluster import cluster as cluster
    from cfgraph.passes.derivatives import gradients as gradients
    from cfgraph.passes.lower.lower import lower as lower
    from cfgraph.passes.partition.partition import partition as partition
    from cfgraph.passes.place.place import place as place
    from cfgraph.runtime.cost_model import CostModel as CostModel
    from cfgraph.runtime.cost_model import read_costs as read_costs
    from cfgraph.runtime.restore import restore as restore
    from cfgraph.runtime.session import Session as Session

__version__ = "0.1.0"

# imported when first used: `cfgraph --help` needs none of them
_HOMES = {
    "Builder": "cfgraph.build.builder",
    "CfgraphError": "cfgraph.errors",
    "CostModel": "cfgraph.runtime.cost_model",
    "ExecutionError": "cfgraph.errors",
    "Graph": "cfgraph.ir.graph",
    "InvalidInput": "cfgraph.errors",
    "Node": "cfgraph.ir.node",
    "Output": "cfgraph.ir.node",
    "RunTimeout": "cfgraph.errors",
    "Session": "cfgraph.runtime.session",
    "Unsupported": "cfgraph.errors",
    "UsageError": "cfgraph.errors",
    "check": "cfgraph.analysis.check",
    "cluster": "cfgraph.passes.cluster.cluster",
    "diff": "cfgraph.compare.diff",
    "dumps": "cfgraph.ir.files",
    "gradients": "cfgraph.passes.derivatives",
    "load": "cfgraph.ir.files",
    "loads": "cfgraph.ir.files",
    "lower": "cfgraph.passes.lower.lower",
    "partition": "cfgraph.passes.partition.partition",
    "place": "cfgraph.passes.place.place",
    "read_costs": "cfgraph.runtime.cost_model",
    "restore": "cfgraph.runtime.restore",
    "save": "cfgraph.ir.files",
}
__all__ = list(_HOMES)
# whoever holds a graph asks it for types and attributes, which the ops declare
_NEED_OPS = {"Graph", "load", "loads", "restore"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cfgraph' has no attribute '{name}'")
    if name in _NEED_OPS:
        importlib.import_module("cfgraph.ops")
    home = _HOMES[name]
    if home.startswith("cfgraph.ir."):
        # graphs know the types of their outputs from the registry of ops
        importlib.import_module("cfgraph.ops")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
