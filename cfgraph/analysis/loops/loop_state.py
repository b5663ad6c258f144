"""The variables of a loop: what each begins with, what updates it, and what it is for.

A loop is a frame of primitives, or a node that calls a function for each iteration. In both, the
value that an iteration reads is compared with the one that it returns:

    returned = argument                 unchanged
    returned = argument + constant      counter
    returned = argument with item x     list that collects x, often another variable: a state
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final, NamedTuple

from cfgraph.analysis.feeds_and_fetches import format_type
from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.while_loop import LoopVariable, value_in_iteration, while_loop
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ir.traversal import is_transfer, rendezvous_key
from cfgraph.ops.families.arithmetic import Add, AddV2, Sub
from cfgraph.ops.families.constants import Const
from cfgraph.ops.opdef.op import function_calls, is_a, lookup
from cfgraph.ops.shape_inference import StaticShapes
from cfgraph.reports import OPTIONAL, Column, Count, Maybe, Record

# late imports: only the state of a loop shows what lists and arrays collect

_MAX_DIGITS: Final = 9
_ITEM_NAMES: Final = ("item", "tensor", "value")


class LoopStateVariable(Record):
    """A variable of a loop."""

    index: Annotated[Count, Column(title="")]
    #: The name of the tensor that it begins with, without scopes.
    name: Annotated[str, Column(style="cyan")]
    type: str
    initial: Annotated[str, Column(title="begins with", scoped=True)]
    updated: Annotated[Maybe[str], OPTIONAL, Column(title="updated by", optional=True, scoped=True)]
    role: Annotated[str, Column(title="is", scoped=True)]


VARIABLE_COLUMNS: Final = ("index", "name", "type", "role", "updated")


class _VariableTensors(NamedTuple):
    """A variable: the value that an iteration reads, the one that it returns, and the first."""

    argument: Output
    returned: Output
    initial: Output
    type: str


def carried_tensors(frame: Frame) -> list[Output]:
    """The variables of a loop of primitives as an iteration reads them, without invariants."""
    loop = while_loop(frame)
    variables = sorted(loop.variables, key=_number) if loop else []
    return [variable.merge.output() for variable in variables]


def invariant_tensors(frame: Frame) -> list[Output]:
    """The invariants of a loop of primitives as an iteration reads them."""
    return [enter.output() for enter in sorted(frame.invariants, key=_numbered)]


def frame_variables(frame: Frame, shapes: StaticShapes) -> list[LoopStateVariable]:
    """The variables of a loop of primitives, invariants last."""
    loop = while_loop(frame)
    if loop is None:
        return []
    variables = [
        _VariableTensors(
            item.merge.output(), item.updated, item.initial, _type(item.initial, shapes)
        )
        for item in sorted(loop.variables, key=_number)
    ]
    for value in invariant_tensors(frame):
        initial = value.node.inputs[0]
        variables.append(_VariableTensors(value, value, initial, _type(initial, shapes)))
    return _described(variables)


def _number(variable: LoopVariable) -> int:
    """The number that lowering and TensorFlow give the Merge of a variable."""
    return _numbered(variable.merge)


def _numbered(node: Node) -> int:
    number = node.name.rpartition("/")[2].rpartition("_")[2]
    return int(number) if number.isdecimal() and len(number) <= _MAX_DIGITS else 0


def _type(tensor: Output, shapes: StaticShapes) -> str:
    return format_type(tensor.dtype, shapes[tensor])


def call_variables(node: Node, graph: Graph) -> list[LoopStateVariable]:
    """The variables of a node that calls a function for each iteration."""
    calls = function_calls(node.op)
    func = node.attrs["body"]
    body = FunctionInstances(graph.functions).get(func.name, func.attrs)
    return _described([*_call_variables(node, calls.first_argument, calls.kind == "for", body)])


def _call_variables(
    node: Node, first: int, counts: bool, body: FunctionGraph
) -> Iterator[_VariableTensors]:
    shapes = node.attrs.get("output_shapes", ())
    values = zip(node.inputs[first:], body.arguments[counts:], body.returns, strict=False)
    for index, (initial, argument, returned) in enumerate(values):
        shape = shapes[index] if index < len(shapes) else UNKNOWN_SHAPE
        shape = shape if isinstance(shape, Shape) else UNKNOWN_SHAPE
        dtype = body.output_types[index]
        yield _VariableTensors(argument.output(), returned, initial, format_type(dtype, shape))


def _described(variables: Sequence[_VariableTensors]) -> list[LoopStateVariable]:
    returned = [value_in_iteration(variable.returned) for variable in variables]
    collectors = {
        item: index
        for index, (variable, value) in enumerate(zip(variables, returned, strict=True))
        if (item := _collected_item(variable.argument, value)) is not None
    }
    arguments = [variable.argument for variable in variables]
    described = []
    for index, (variable, value) in enumerate(zip(variables, returned, strict=True)):
        is_same = value == variable.argument
        described.append(
            LoopStateVariable(
                index,
                _source_name(variable.initial.node).rpartition("/")[2],
                variable.type,
                variable.initial.name,
                None if is_same else value.name,
                _role(variable.argument, value, collectors, returned, arguments),
            )
        )
    return described


def _source_name(node: Node) -> str:
    """The name of a node, or of the one whose value it receives from another device."""
    is_received = ROLES[node.op] is Role.RECV and is_transfer(node)
    return rendezvous_key(node).sent_name if is_received else node.name


def _role(
    argument: Output,
    value: Output,
    collectors: dict[Output, int],
    returned: Sequence[Output],
    arguments: Sequence[Output],
) -> str:
    if value == argument:
        return "unchanged"
    item = _collected_item(argument, value)
    if item is not None:
        sources = [index for index, other in enumerate(returned) if other == item]
        return f"list that collects {f'variable {sources[0]}' if sources else item.name}"
    if (step := _step(argument, value)) is not None:
        return f"counter, {'+' * (step >= 0)}{step} per iteration"
    if value in arguments:
        return f"previous value of variable {arguments.index(value)}"
    collector = collectors.get(value)
    return "state" if collector is None else f"state, collected by variable {collector}"


def _collected_item(argument: Output, value: Output) -> Output | None:
    """The element that an iteration adds to a list or array."""
    from cfgraph.ops.families.tensor_array_ops import TensorArrayWriteV3
    from cfgraph.ops.families.tensor_list_ops import TensorListPushBack, TensorListSetItem

    if not is_a(value.node, TensorListSetItem, TensorListPushBack, TensorArrayWriteV3):
        return None
    node, op = value.node, lookup(value.node.op)
    if op is None or all(value_in_iteration(tensor) != argument for tensor in node.inputs):
        return None
    names = [item.name for item in op.parsed().inputs]
    slot = next((names.index(name) for name in _ITEM_NAMES if name in names), None)
    return None if slot is None else value_in_iteration(node.inputs[slot])


def _step(argument: Output, value: Output) -> int | float | None:
    """The constant that an iteration adds to a variable."""
    node = value.node
    if not is_a(node, Add, AddV2, Sub):
        return None
    left, right = map(value_in_iteration, node.inputs)
    if left == argument and is_a(right.node, Const):
        step = _scalar(right)
        return -step if step is not None and is_a(node, Sub) else step
    is_sum = right == argument and is_a(left.node, Const) and not is_a(node, Sub)
    return _scalar(left) if is_sum else None


def _scalar(tensor: Output) -> int | float | None:
    array = tensor.node.attrs["value"].array
    is_number = array.ndim == 0 and array.dtype.kind in "iuf"
    return array.item() if is_number else None
