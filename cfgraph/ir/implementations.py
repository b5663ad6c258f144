"""Functions with several implementations, one of which is selected for the device of a call.

Functions with an equal attribute `api_implements` compute the same; `api_preferred_device` names
the type of device that one of them is written for. TensorFlow's implementation selector replaces
the function that a call names by the sibling for the device that the call runs on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfgraph.ir.attrs import Func
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.functions import Function, FunctionDefinition
from cfgraph.ir.graph import Graph, Node

_INTERFACE: Final = "api_implements"
_PREFERENCE: Final = "api_preferred_device"
# attributes by which the three functions of a differentiated call name each other
_PASSES: Final = ("forward_function_name", "backward_function_name")
_DEFAULT_TYPE: Final = "CPU"


def select_implementation(library: Mapping[str, Function], name: str, device: str) -> str:
    """The function that a call of `name` on a device runs: a sibling that prefers the device.

    A call without a device counts as a call on a CPU. The function itself, if it is the only one
    of its interface or no sibling prefers the device.
    """
    function = library.get(name)
    if function is None or _INTERFACE not in function.definition.attrs:
        return name
    parts = DeviceName.parse(device)
    wanted = (parts and parts.kind) or _DEFAULT_TYPE
    if _preferred_type(function.definition) == wanted:
        return name
    return next(
        (
            key
            for key in siblings(library, name)
            if _preferred_type(library[key].definition) == wanted
        ),
        name,
    )


def called_implementation(graph: Graph, node: Node) -> str | None:
    """The function that a call runs, or None if it names no function with several ones."""
    called = node.attrs.get("f")
    name = called.name if isinstance(called, Func) else node.op
    function = graph.functions.get(name)
    if function is None or next(siblings(graph.functions, name), None) is None:
        return None
    return select_implementation(graph.functions, name, node.device)


def siblings(library: Mapping[str, Function], name: str) -> Iterator[str]:
    """The other functions with the interface, the pass, and the types of a function."""
    definition = library[name].definition
    if _INTERFACE in definition.attrs:
        for key, function in library.items():
            if key != name and _identity(function.definition) == _identity(definition):
                yield key


def _identity(definition: FunctionDefinition) -> tuple[Any, ...]:
    """Facts that equivalent implementations share."""
    return (
        definition.attrs.get(_INTERFACE),
        tuple(key in definition.attrs for key in _PASSES),
        tuple((arg.dtype, arg.type_attr) for arg in definition.inputs),
        tuple((arg.dtype, arg.type_attr) for arg in definition.outputs),
    )


def _preferred_type(definition: FunctionDefinition) -> str:
    value = definition.attrs.get(_PREFERENCE, b"")
    return value.decode("utf-8", "replace").upper() if isinstance(value, bytes) else ""
