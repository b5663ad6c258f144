"""Custom gradients of a SavedModel: functions, and the tensors outside that they read.

The objects of a SavedModel name these tensors, in the order of the last arguments of a function:

    bound_inputs: 1, 6     variable "w", captured tensor "mul:0" of the function "f"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfgraph.ir.functions import RegisteredGradient

# what a SavedVariable, SavedConstant, or CapturedTensor is, by the name of the oneof's field
_VARIABLE, _CONSTANT, _TENSOR = "variable", "constant", "captured_tensor"


def registered_gradients(library: Any, objects: Any) -> Mapping[str, RegisteredGradient]:
    """The gradients that a library registers, by name; `objects` is None outside a SavedModel."""
    known = {} if objects is None else objects.concrete_functions
    return {
        item.registered_op_type: _registered_gradient(item.gradient_func, known, objects)
        for item in library.registered_gradients
        if item.registered_op_type
    }


def _registered_gradient(name: str, known: Any, objects: Any) -> RegisteredGradient:
    if name not in known:
        return RegisteredGradient(name)
    function = known[name]
    count = len(objects.nodes)
    numbers = [number for number in function.bound_inputs if 0 <= number < count]
    captures = tuple(_capture(objects.nodes[number]) for number in numbers)
    signature = function.output_signature
    results = getattr(signature, signature.WhichOneof("kind") or "list_value")
    values = getattr(results, "values", ())
    slots = [slot for slot, value in enumerate(values) if value.WhichOneof("kind") != "none_value"]
    return RegisteredGradient(name, captures, tuple(slots) if values else None)


def _capture(node: Any) -> tuple[str, str]:
    kind = node.WhichOneof("kind")
    if kind == _TENSOR:
        return node.captured_tensor.concrete_function, node.captured_tensor.name
    name = node.variable.name if kind == _VARIABLE else node.constant.operation
    return "", name
