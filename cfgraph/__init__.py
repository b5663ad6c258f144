"""Inspect, check, transform, and run TensorFlow graphs with control flow.

Files      load, save, loads, dumps
Graphs     Graph, Node, Output; Builder writes graphs from Python, or adds to one; edit_function
           opens the body of a function
Passes     lower, functionalize, place, partition, cluster, extract, optimize, freeze: in place,
           each returns a report; gradients, jacobian, hessian, jvp, hvp return names of tensors;
           Pipeline runs several passes from a text; transform applies a function of your own, and
           verifies the result
Limits     limited sets a timeout and other limits in a `with` block
Runs       Session; Taps, with a TappedTensor per tensor, for arrays per iteration; restore and
           save_variables for checkpoints; CostModel and read_costs for virtual time; Processes and
           Ray for runs on several workers
Analysis   check, diff; compare runs two graphs with the same inputs
Errors     CfgraphError and its subclasses UsageError, InvalidInput, Unsupported, ExecutionError,
           RunTimeout, WorkerLost, ValuesDiffer
"""

from __future__ import annotations

import importlib

from cfgraph.version import __version__ as __version__

# as `typing` defines it; a command handles signals as soon as this module is imported
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cfgraph.analysis.check import check as check
    from cfgraph.backends.workers.on_ray import Ray as Ray
    from cfgraph.backends.workers.processes import Processes as Processes
    from cfgraph.build.builder import Builder as Builder
    from cfgraph.comparison.diff import diff as diff
    from cfgraph.comparison.differences import ValuesDiffer as ValuesDiffer
    from cfgraph.console.comparisons.compare import compare as compare
    from cfgraph.console.transforms.function_pass import transform as transform
    from cfgraph.console.transforms.pass_pipeline import Pipeline as Pipeline
    from cfgraph.errors import CfgraphError as CfgraphError
    from cfgraph.errors import ExecutionError as ExecutionError
    from cfgraph.errors import InvalidInput as InvalidInput
    from cfgraph.errors import RunTimeout as RunTimeout
    from cfgraph.errors import Unsupported as Unsupported
    from cfgraph.errors import UsageError as UsageError
    from cfgraph.errors import WorkerLost as WorkerLost
    from cfgraph.ir.files import dumps as dumps
    from cfgraph.ir.files import load as load
    from cfgraph.ir.files import loads as loads
    from cfgraph.ir.files import save as save
    from cfgraph.ir.graph import Graph as Graph
    from cfgraph.ir.library import edit_function as edit_function
    from cfgraph.ir.node import Node as Node
    from cfgraph.ir.node import Output as Output
    from cfgraph.limits import limited as limited
    from cfgraph.passes.cluster.cluster import cluster as cluster
    from cfgraph.passes.derivatives import gradients as gradients
    from cfgraph.passes.extract import extract as extract
    from cfgraph.passes.freeze.freeze import freeze as freeze
    from cfgraph.passes.functionalize.functionalize import functionalize as functionalize
    from cfgraph.passes.jacobians import hessian as hessian
    from cfgraph.passes.jacobians import hvp as hvp
    from cfgraph.passes.jacobians import jacobian as jacobian
    from cfgraph.passes.jacobians import jvp as jvp
    from cfgraph.passes.lowering import lower as lower
    from cfgraph.passes.optimize.optimize import optimize as optimize
    from cfgraph.passes.partition.partition import partition as partition
    from cfgraph.passes.place.place import place as place
    from cfgraph.runtime.cost_model import CostModel as CostModel
    from cfgraph.runtime.cost_model import read_costs as read_costs
    from cfgraph.runtime.preparation.taps import TappedTensor as TappedTensor
    from cfgraph.runtime.preparation.taps import Taps as Taps
    from cfgraph.runtime.restore import restore as restore
    from cfgraph.runtime.restore import save_variables as save_variables
    from cfgraph.runtime.session import Session as Session

# imported on first use: `cfgraph --help` needs none of them
_HOMES = {
    "Builder": "cfgraph.build.builder",
    "CfgraphError": "cfgraph.errors",
    "CostModel": "cfgraph.runtime.cost_model",
    "ExecutionError": "cfgraph.errors",
    "Graph": "cfgraph.ir.graph",
    "InvalidInput": "cfgraph.errors",
    "Node": "cfgraph.ir.node",
    "Output": "cfgraph.ir.node",
    "Pipeline": "cfgraph.console.transforms.pass_pipeline",
    "Processes": "cfgraph.backends.workers.processes",
    "Ray": "cfgraph.backends.workers.on_ray",
    "RunTimeout": "cfgraph.errors",
    "Session": "cfgraph.runtime.session",
    "TappedTensor": "cfgraph.runtime.preparation.taps",
    "Taps": "cfgraph.runtime.preparation.taps",
    "Unsupported": "cfgraph.errors",
    "UsageError": "cfgraph.errors",
    "ValuesDiffer": "cfgraph.comparison.differences",
    "WorkerLost": "cfgraph.errors",
    "check": "cfgraph.analysis.check",
    "cluster": "cfgraph.passes.cluster.cluster",
    "compare": "cfgraph.console.comparisons.compare",
    "diff": "cfgraph.comparison.diff",
    "dumps": "cfgraph.ir.files",
    "edit_function": "cfgraph.ir.library",
    "extract": "cfgraph.passes.extract",
    "freeze": "cfgraph.passes.freeze.freeze",
    "functionalize": "cfgraph.passes.functionalize.functionalize",
    "gradients": "cfgraph.passes.derivatives",
    "hessian": "cfgraph.passes.jacobians",
    "hvp": "cfgraph.passes.jacobians",
    "jacobian": "cfgraph.passes.jacobians",
    "jvp": "cfgraph.passes.jacobians",
    "limited": "cfgraph.limits",
    "load": "cfgraph.ir.files",
    "loads": "cfgraph.ir.files",
    "lower": "cfgraph.passes.lowering",
    "optimize": "cfgraph.passes.optimize.optimize",
    "partition": "cfgraph.passes.partition.partition",
    "place": "cfgraph.passes.place.place",
    "read_costs": "cfgraph.runtime.cost_model",
    "restore": "cfgraph.runtime.restore",
    "save": "cfgraph.ir.files",
    "save_variables": "cfgraph.runtime.restore",
    "transform": "cfgraph.console.transforms.function_pass",
}
__all__ = list(_HOMES)
# types and attributes of a graph come from the op registry
_NEED_OPS = {"Graph", "load", "loads", "restore"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cfgraph' has no attribute '{name}'")
    if name in _NEED_OPS:
        importlib.import_module("cfgraph.ops")
    home = _HOMES[name]
    if home.startswith("cfgraph.ir."):
        # output types come from the op registry
        importlib.import_module("cfgraph.ops")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
