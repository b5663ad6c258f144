"""Backends and integrations by what they provide; only commands import one by themselves.

A package of `cfgraph/backends/` or `cfgraph/integrations/` lists in `PROVIDES` what it provides,
by kind and name, and `extension_index.py` is generated from these lists.

    PROVIDES = {("engine", "toy"): "toy_engine:ToyEngine"}
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from cfgraph.extension_index import EXTENSIONS

# kinds, and the protocol of each
COMPILER: Final = "compiler"  # ClusterCompiler, runtime/cluster_runner.py
DEVICE: Final = "device"  # DeviceBackend, runtime/preparation/engines.py
ENGINE: Final = "engine"  # Engine, runtime/preparation/engines.py, by its name
SESSION_OPTION: Final = "session option"  # Engine, by the option of a session that requests it
OPTIONS: Final = "options"  # OptionGroup of `run`, with `make_engine`, by the name of the engine
TIER: Final = "tier"  # Tier, runtime/preparation/engines.py
MODULES: Final = "modules"  # functions that run and read the module of an XlaCallModule
NODE_DATA: Final = "node data"  # writers of data per node of a graph, by command
CONVERTER: Final = "converter"  # functions that write a graph as another program, by suffix
WORKERS: Final = "worker options"  # ways to start workers
RENDERER: Final = "renderer"  # functions that display an object in a notebook


# the engines of the core
AUTO: Final = "auto"
TOKENS: Final = "tokens"
COMPILED: Final = "compiled"


def engine_names() -> tuple[str, ...]:
    """The engines that a session may name."""
    return AUTO, TOKENS, COMPILED, *extension_names(COMPILER), *extension_names(ENGINE)


def extension_names(kind: str) -> tuple[str, ...]:
    """The names of the extensions of a kind, in the order of the alphabet."""
    return tuple(EXTENSIONS.get(kind, ()))


def extension(kind: str, name: str) -> Any:
    """An extension, whose module is imported. Raises KeyError for an unknown one."""
    module, _, attribute = EXTENSIONS[kind][name].partition(":")
    return getattr(import_module(module), attribute)
