"""The condition of a loop as an expression of its variables, such as `i < n and error > 0.001`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.loop_state import LoopStateVariable, carried_tensors, invariant_tensors
from cfgraph.analysis.loops.while_loop import loop_variable, value_in_iteration
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Output
from cfgraph.ir.role import Role
from cfgraph.ops.families.arithmetic import Add, AddV2, Mul, Sub
from cfgraph.ops.families.comparison import (
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    NotEqual,
)
from cfgraph.ops.opdef.op import Op, lookup, role_of, strip_identities

# operators with how tightly they bind, as in Python
_OPERATORS: Final[Mapping[type[Op], tuple[str, int]]] = {
    LogicalOr: ("or", 1),
    LogicalAnd: ("and", 2),
    Less: ("<", 4),
    LessEqual: ("<=", 4),
    Greater: (">", 4),
    GreaterEqual: (">=", 4),
    Equal: ("==", 4),
    NotEqual: ("!=", 4),
    Add: ("+", 5),
    AddV2: ("+", 5),
    Sub: ("-", 5),
    Mul: ("*", 6),
}
_NOT: Final = 3
_CALL: Final = 7
_MAX_DEPTH: Final = 6
_MAX_ELEMENTS: Final = 4


def loop_condition(frame: Frame, variables: Sequence[LoopStateVariable]) -> str | None:
    """The condition under which a loop goes on; None if the frame has no single LoopCond.

    `variables` are all variables of the loop, as `frame_variables` orders them. One whose name
    others have is called by its index, and one that stays a small constant by its value.
    """
    if frame.loop_cond is None:
        return None
    counts = Counter(variable.name for variable in variables)
    names = [
        item.name if counts[item.name] == 1 else f"variable {item.index}" for item in variables
    ]
    tensors = [*carried_tensors(frame), *invariant_tensors(frame)]
    leaves = dict(zip(tensors, names, strict=True))
    for variable, tensor in zip(variables, tensors, strict=True):
        text = _constant_text(_initial(tensor)) if variable.updated is None else None
        leaves[tensor] = text or leaves[tensor]
    return _text(frame.loop_cond.inputs[0], leaves, 0, _MAX_DEPTH)


def _initial(tensor: Output) -> Output:
    """The first value of a variable or invariant that an iteration reads."""
    variable = loop_variable(tensor.node)
    return strip_identities(variable.initial if variable else tensor.node.inputs[0])


def _constant_text(tensor: Output) -> str | None:
    """The value of a small constant, with the fewest digits; None for any other tensor."""
    value = tensor.node.attrs.get("value")
    if not isinstance(value, TensorValue) or value.array.size > _MAX_ELEMENTS:
        return None
    array = value.array
    if array.dtype.kind != "f":
        return str(array.tolist())
    texts = ["NaN" if np.isnan(item) else str(item) for item in array.ravel()]
    return f"[{', '.join(texts)}]" if array.ndim else texts[0]


def _text(tensor: Output, leaves: Mapping[Output, str], binding: int, depth: int) -> str:
    """The expression of a tensor, in parentheses if it binds less tightly than its place."""
    origin = value_in_iteration(tensor)
    node, op = origin.node, lookup(origin.node.op)
    if origin in leaves:
        return leaves[origin]
    if (constant := _constant_text(origin)) is not None:
        return constant
    if not node.inputs or role_of(node) in (Role.MERGE, Role.ENTER, Role.EXIT):
        return node.name
    if depth == 0:
        return "…"
    if op is LogicalNot:
        own, text = _NOT, f"not {_text(node.inputs[0], leaves, _NOT, depth - 1)}"
    elif op is not None and op in _OPERATORS:
        sign, own = _OPERATORS[op]
        left = _text(node.inputs[0], leaves, own, depth - 1)
        text = f"{left} {sign} {_text(node.inputs[1], leaves, own + 1, depth - 1)}"
    else:
        operands = ", ".join(_text(x, leaves, 0, depth - 1) for x in node.inputs)
        own, text = _CALL, f"{node.op}({operands})"
    return f"({text})" if own < binding else text
