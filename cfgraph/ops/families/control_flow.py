"""The control-flow primitives (Switch, Merge, Enter, Exit, NextIteration, …), _Send, and _Recv."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from cfgraph.ir.role import Role
from cfgraph.ir.shapes import SCALAR_SHAPE, Shape
from cfgraph.ops.families.constants import identity
from cfgraph.ops.opdef.facts import CompilerSupport, SideEffects
from cfgraph.ops.opdef.op import Op, OpError, SameShape
from cfgraph.ops.opdef.shape_functions import InferenceContext


class ForwardingOp(SameShape, abstract=True):
    """Base class of ops whose live outputs forward input 0 unchanged."""

    function = staticmethod(identity)


class Switch(ForwardingOp):
    """Forward data to the output that the predicate selects; the other output is dead."""

    signature = "data: T, pred: host bool -> output_false: T, output_true: T"
    role = Role.SWITCH


class RefSwitch(ForwardingOp):
    """Switch for references."""

    signature = "data: Ref(T), pred: host bool -> output_false: Ref(T), output_true: Ref(T)"
    role = Role.SWITCH


class _SwitchN(ForwardingOp):
    """Forward data to the output with the given index, or to the last if it is out of range."""

    signature = "data: T, output_index: host int32 -> outputs: num_outs*T"
    role = Role.SWITCH


class MergeOp(Op, abstract=True):
    """Join of mutually exclusive inputs: forwards the live input and its index."""

    role = Role.MERGE

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [reduce(Shape.generalize, context.inputs, context.inputs[0]), SCALAR_SHAPE]


class Merge(MergeOp):
    """Forward the first live input, with its index as `value_index`."""

    signature = "inputs: N*T -> output: T, value_index: int32"


class RefMerge(MergeOp):
    """Merge for references."""

    signature = "inputs: N*Ref(T) -> output: Ref(T), value_index: int32"


class _XlaMerge(SameShape):
    """Merge of a compiled cluster and its fallback, which TensorFlow adds for each cluster."""

    signature = "partitioned_call: T, xla_run: T -> output: T"
    role = Role.MERGE
    compilation = CompilerSupport(runnable=False)


class EnterOp(ForwardingOp, abstract=True):
    """Entry of a value into a loop frame: to iteration 0, or to all iterations if constant."""

    attrs = "frame_name: string, is_constant: bool = false, parallel_iterations: int = 10"
    role = Role.ENTER


class Enter(EnterOp):
    """Forward a value into a loop frame: to iteration 0, or to all iterations if constant."""

    signature = "data: T -> output: T"


class RefEnter(EnterOp):
    """Enter for references."""

    signature = "data: Ref(T) -> output: Ref(T)"


class Exit(ForwardingOp):
    """Forward a value from a loop frame to the parent frame and iteration."""

    signature = "data: T -> output: T"
    role = Role.EXIT


class RefExit(ForwardingOp):
    """Exit for references."""

    signature = "data: Ref(T) -> output: Ref(T)"
    role = Role.EXIT


class NextIteration(ForwardingOp):
    """Forward a value to the next iteration of the loop."""

    signature = "data: T -> output: T"
    role = Role.NEXT_ITERATION


class RefNextIteration(ForwardingOp):
    """NextIteration for references."""

    signature = "data: Ref(T) -> output: Ref(T)"
    role = Role.NEXT_ITERATION


class LoopCond(ForwardingOp):
    """Mark the predicate of a loop and forward it unchanged."""

    signature = "input: host bool -> output: host bool"
    role = Role.LOOP_COND
    shape = staticmethod(lambda context: [SCALAR_SHAPE])


def _no_outputs() -> None:
    return None


class ControlTrigger(Op):
    """Synchronize control inputs; live even if they are dead."""

    signature = "->"
    role = Role.CONTROL_TRIGGER
    function = staticmethod(_no_outputs)


class NoOp(Op):
    """Do nothing; a target for control edges."""

    signature = "->"
    function = staticmethod(_no_outputs)


def _ref_select(index: Any, *references: Any) -> Any:
    if not 0 <= index < len(references):
        raise OpError(f"Index must be in the range [0, {len(references)}) but got {index}")
    return references[index]


class RefSelect(Op):
    """Forward the reference with the given index. Not control flow: all inputs must be live."""

    signature = "index: int32, inputs: N*Ref(T) -> output: Ref(T)"
    compilation = CompilerSupport(compiled=False)
    function = staticmethod(_ref_select)


_KEY = (
    "tensor_name: string, send_device: string, send_device_incarnation: int,"
    " recv_device: string, client_terminated: bool = false"
)


class _Send(Op):
    """Send a tensor to the Recv with the same rendezvous key."""

    signature = "tensor: T ->"
    attrs = _KEY
    effects = SideEffects(stateful=True)
    role = Role.SEND


class _HostSend(_Send):
    """Send a tensor in host memory to the Recv with the same rendezvous key."""

    signature = "tensor: host T ->"


class Send(_Send):
    """Public name of _Send in old GraphDefs."""


class _Recv(Op):
    """Tensor received from the Send with the same rendezvous key."""

    signature = "-> tensor: tensor_type"
    attrs = _KEY
    effects = SideEffects(stateful=True)
    role = Role.RECV


class _HostRecv(_Recv):
    """Tensor in host memory received from the Send with the same rendezvous key."""


class Recv(_Recv):
    """Public name of _Recv in old GraphDefs."""
