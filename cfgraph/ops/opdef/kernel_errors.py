"""Failures of kernels in terms of the graph: op, types, shapes, and names of inputs.

    AddV2: shapes float32[2,3] (while/MatMul) and float32[2,4] (while/ones) do not broadcast

NumPy describes what its own function rejects, which need not be what the op does. So its text is
dropped: the shape function says what does not fit, else all inputs are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from cfgraph.errors import CfgraphError
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import ENTER, SWITCH
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, ShapeError
from cfgraph.ir.units import format_byte_size
from cfgraph.ops.opdef.op import OpError, lookup, role_of
from cfgraph.ops.opdef.shape_functions import InferenceContext

_SHAPE: Final = re.compile(r"\[[\d?,]*\]")
_MAX_LISTED: Final = 8
_MAX_ELEMENTS: Final = 8
_MAX_STEPS: Final = 100


# outputs that the arguments of a function stand for, in the graph that calls it
Arguments = Mapping[Node, Output]


def kernel_error(
    error: Exception,
    node: Node,
    inputs: Sequence[Any] = (),
    names: Sequence[str] = (),
    arguments: Arguments = MappingProxyType({}),
) -> OpError:
    """The error of a kernel that raised one of Python or NumPy for these inputs.

    Without the `inputs`, only their names are known. `names` are those of the inputs, by default
    of the tensors that the node reads, where `arguments` replace those of a function.
    """
    names = names or [_label(item, arguments) for item in node.inputs]
    values = list(inputs) if len(inputs) == len(names) else []
    if isinstance(error, MemoryError):
        return OpError(f"{node.op}: {_memory_text(error)}")
    hint = _origins(node, arguments)
    texts = [_described(node, slot, value, names[slot]) for slot, value in enumerate(values)]
    reason = _shape_reason(node, values)
    if reason is None:
        listed = [_with_value(*pair) for pair in zip(texts, values, strict=True)] or names
        colon = ": " if listed else ""
        return OpError(f"{node.op}: the inputs do not fit{colon}{_listed(listed)}", hint=hint)
    named = _with_inputs(reason, values, texts)
    if named == reason:
        named = f"{reason}; inputs {_listed(texts)}"
    return OpError(f"{node.op}: {named}", hint=hint)


def _label(output: Output, arguments: Arguments) -> str:
    """The name of a tensor where it is computed, before it enters loops, branches, and functions.

    Without the port if that is 0.
    """
    for _ in range(_MAX_STEPS):
        node = output.node
        if node in arguments:
            output = arguments[node]
        elif role_of(node) in (ENTER, SWITCH):
            output = node.inputs[0]
        else:
            break
    return output.node.name if output.port == 0 else output.name


def _described(node: Node, slot: int, value: Any, name: str) -> str:
    """Type, shape, and name of an input: `float32[2,3] (x)`."""
    dtype = node.inputs[slot].dtype if slot < len(node.inputs) else None
    if dtype is None and isinstance(value, np.ndarray | np.generic):
        dtype = DType.from_numpy(value.dtype)
    shape = _shape_of(value)
    text = f"{'?' if dtype is None else dtype.base}{'' if shape.dims is None else shape}"
    return f"{text} ({name})" if name else text


def _shape_of(value: Any) -> Shape:
    shape = getattr(value, "shape", None)
    return Shape(shape) if isinstance(shape, tuple) else UNKNOWN_SHAPE


def _with_value(text: str, value: Any) -> str:
    """The description of an input with its value, if that is a number or a short list of them."""
    is_array = isinstance(value, np.ndarray | np.generic) and value.dtype != object
    if not is_array or value.ndim > 1 or value.size > _MAX_ELEMENTS:
        return text
    kind, _, name = text.partition(" ")
    return f"{kind} = {np.asarray(value).tolist()} {name}".rstrip()


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _MAX_LISTED
    return ", ".join(texts[:_MAX_LISTED]) + (f", and {more} more" if more > 0 else "")


def _shape_reason(node: Node, values: Sequence[Any]) -> str | None:
    """The reason for which the shape function rejects the inputs, or None.

    None also for the node of a Python file, which has neither inputs nor attributes.
    """
    op = lookup(node.op)
    if op is None or not values or len(node.inputs) != len(values):
        return None

    def value(slot: int) -> Any | None:
        known = values[slot]
        return np.asarray(known) if isinstance(known, np.ndarray | np.generic) else None

    try:
        op.shape(InferenceContext(node, tuple(map(_shape_of, values)), value))
    except ShapeError as error:
        return str(error)
    except CfgraphError as error:
        return error.message
    except Exception:  # the values are of another kind than the op expects, as for the kernel
        return None
    return None


def _with_inputs(reason: str, values: Sequence[Any], texts: Sequence[str]) -> str:
    """The reason with types and names, if each shape in it is that of an input of its own."""
    unused = {slot: str(_shape_of(value)) for slot, value in enumerate(values)}
    named: list[str] = []
    for shape in _SHAPE.findall(reason):
        slot = next((slot for slot, text in unused.items() if text == shape), None)
        if slot is None:
            return reason
        del unused[slot]
        named.append(texts[slot])
    found = iter(named)
    return _SHAPE.sub(lambda _: next(found), reason)


def _memory_text(error: MemoryError) -> str:
    """The reason of a lack of memory: the array that NumPy could not allocate, if it says so."""
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    if not isinstance(shape, tuple) or not isinstance(dtype, np.dtype):
        return "out of memory"
    size = dtype.itemsize
    for dim in shape:
        size *= dim
    return f"out of memory: an array {dtype}{Shape(shape)} takes {format_byte_size(size)}"


def _origins(node: Node, arguments: Arguments) -> str | None:
    """Hint with the nodes of static shape that give inputs of a node their shapes."""
    texts = dict.fromkeys(text for item in node.inputs for text in _origin(item, arguments))
    return "; ".join(list(texts)[:_MAX_LISTED]) or None


def _origin(output: Output, arguments: Arguments) -> Iterator[str]:
    source = output
    for _ in range(_MAX_STEPS):
        if source.node in arguments:
            source = arguments[source.node]
            continue
        slot = _shape_slot(source.node)
        if slot is None:
            break
        source = source.node.inputs[slot]
    origin, label = source.node, _label(output, arguments)
    shape = origin.attrs.get("shape")
    is_declared = isinstance(shape, Shape) and shape.is_full
    if origin.inputs or not (is_declared or "value" in origin.attrs):
        return
    kind = f"a {origin.op} of shape {shape}" if is_declared else f"a {origin.op}"
    same = origin.name == label
    yield f"{label} is {kind}" if same else f"{label} has the shape of {origin.name}, {kind}"


def _shape_slot(node: Node) -> int | None:
    """The input whose shape the first output of a node has, if it is a single one."""
    op = lookup(node.op)
    if op is None or not node.inputs:
        return None
    is_read = op.effects.reads_only and op.effects.atomic and len(node.inputs) == 1
    if is_read or op.role in (ENTER, SWITCH):
        return 0
    slots = list(op.shape_slots(node))
    return slots[0] if len(slots) == 1 else None
