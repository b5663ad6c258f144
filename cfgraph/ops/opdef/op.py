"""The base classes of ops: signature, facts, and hooks for kernel, shape, gradient, and cost.

State is accessed through a handle (a resource or a reference). Making a handle is not an effect,
and neither is drawing a random number. `analysis/effects.py` identifies the resource behind each
handle; functional ops have the effects of the functions that they call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from cfgraph.errors import CfgraphError, ExecutionError, Unsupported
from cfgraph.ir import registry
from cfgraph.ir.dtypes import variant
from cfgraph.ir.functions import CUSTOM_GRADIENT_ATTR, BodyNode
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ir.signature import Signature
from cfgraph.ops.opdef.batching import broadcasting
from cfgraph.ops.opdef.facts import (
    AlgebraicFacts,
    Aliasing,
    CompilerSupport,
    FileAccess,
    FunctionCalls,
    HostPlacement,
    RowOperation,
    SideEffects,
)
from cfgraph.ops.opdef.gradient_api import identity_gradient

if TYPE_CHECKING:
    from cfgraph.ops.opdef.resources import Step
    from cfgraph.ops.opdef.shape_functions import InferenceContext


FLOATS: Final = "bfloat16, float16, float32, float64"
COMPLEX: Final = "complex64, complex128"
SIGNED: Final = "int8, int16, int32, int64"
UNSIGNED: Final = "uint8, uint16, uint32, uint64"
INTEGERS: Final = f"{SIGNED}, {UNSIGNED}"
REAL: Final = f"{FLOATS}, {INTEGERS}"
QUANTIZED: Final = "qint8, quint8, qint16, quint16, qint32"
NUMBERS: Final = f"{REAL}, {COMPLEX}"
ALL_NUMBERS: Final = f"{NUMBERS}, {QUANTIZED}"
INDEX: Final = "{int32, int64}"


def one_of(*types: str, attr: str = "T") -> str:
    """Declare a type attribute that allows the union of these types and sets."""
    return f"{attr}: {{{', '.join(types)}}}"


Kernel = Callable[..., Any]
# raised by a kernel for invalid inputs; any other exception is a bug in cfgraph
KERNEL_FAILURES: Final = (ValueError, TypeError, IndexError, ArithmeticError, MemoryError)
Dims = tuple[int, ...]
# on a loop, or its LoopCond: the values that it saves for its gradient may be moved to the host
SWAP_MEMORY_ATTR: Final = "_swap_memory"
# a type of a signature whose elements are Python objects
_OBJECT_TYPE: Final = re.compile(r"\b(?:string|variant)\b(?!:)")


class OpError(CfgraphError):
    """A kernel rejects its inputs. The runtime adds node, frame, and device."""

    exit_code = 5


class Op:
    """The definition of one op. A subclass registers under its own name unless `abstract`.

    Facts are class attributes, one group each; a subclass that changes part of an inherited group
    writes `replace(Base.group, …)`. The kernel is the first of these that suffices:

    - `function`, of the inputs alone, or its name in the array namespace
    - `kernel(xp, argument, …, /, input, …)`; an argument is an attribute, `node`, or what the
      function of this name of the class derives from the node
    - `bind`, which prepares what depends on attributes once per node

    An `adapter` changes the kernel: `in_float32`, `rounds_each_step` or `on_host`.

    A Step precedes the inputs of a stateful op, which has `run` or `prepare` in place of `bind`. A
    single output is returned bare, several as a tuple, none as None. Every value is a NumPy array
    or NumPy scalar of the dtype of the signature; strings are always object arrays of bytes.
    """

    name: ClassVar[str]
    signature: ClassVar[str]
    attrs: ClassVar[str] = ""

    effects: ClassVar[SideEffects] = SideEffects()
    placement: ClassVar[HostPlacement] = HostPlacement()
    compilation: ClassVar[CompilerSupport] = CompilerSupport()
    aliasing: ClassVar[Aliasing] = Aliasing()
    algebra: ClassVar[AlgebraicFacts] = AlgebraicFacts()
    calls: ClassVar[FunctionCalls] = FunctionCalls()
    role: ClassVar[Role | None] = None

    _parsed: ClassVar[Signature | None] = None

    def __init_subclass__(cls, *, abstract: bool = False, name: str | None = None) -> None:
        if abstract:
            return
        cls.name = name or cls.__name__
        support = cls.compilation
        is_apart = cls.effects.stateful or cls.placement.host_only or cls.role
        if support.traceable and (
            is_apart or not support.runnable or _OBJECT_TYPE.search(cls.signature)
        ):
            cls.compilation = replace(support, traceable=False)
        cls._parsed = None
        registry.register(cls.name, cls)

    @classmethod
    def parsed(cls) -> Signature:
        """The parsed signature, cached."""
        if cls._parsed is None:
            cls._parsed = Signature(cls.signature, cls.attrs)
        return cls._parsed

    @classmethod
    def compiles(cls) -> bool:
        """True if TensorFlow's XLA has a kernel."""
        support = cls.compilation
        return support.traceable if support.compiled is None else support.compiled

    @classmethod
    def slots_of(cls, node: Node, arguments: Sequence[int]) -> frozenset[int]:
        """The input slots of a node that belong to these positions of the signature.

        Raises ValueError if the node lacks an attribute that counts inputs.
        """
        if not arguments:
            return frozenset()
        ends = cls.parsed().input_ends(node.attrs)
        starts = [0, *ends]
        return frozenset(
            slot for argument in arguments for slot in range(starts[argument], ends[argument])
        )

    @classmethod
    def constant_slots(cls, node: Node) -> frozenset[int]:
        """The input slots of a node whose values must be known when it is compiled."""
        return cls.slots_of(node, cls.parsed().constant_inputs)

    @classmethod
    def host_slots(cls, node: Node) -> frozenset[int]:
        """The input slots of a node that its kernel reads in host memory."""
        return cls.slots_of(node, cls.parsed().host_inputs)

    @classmethod
    def file_access(cls, node: Node | BodyNode) -> FileAccess:
        """Kind of file access, by which the I/O policy of a run accepts or rejects the node.

        An op with the fact `does_io` reads if it only reads or initializes, and else writes.
        """
        if not cls.effects.does_io:
            return ""
        return "read" if cls.effects.reads_only or cls.effects.initializes else "write"

    @classmethod
    def can_fail(cls, node: Node) -> bool:
        """True if the kernel rejects some inputs whose types and shapes fit. Default: true."""
        return True

    @classmethod
    def changes_shape(cls, node: Node, shapes: Callable[[Output], Shape]) -> bool:
        """True if a variable may have another shape after the node than the declared one."""
        return False

    @classmethod
    def equal_input(cls, context: InferenceContext) -> int | None:
        """The input slot whose value output 0 has, bit by bit, as far as static shapes and values
        show; the node then cannot fail. Default: input 0 in its own shape.
        """
        is_same = cls.aliasing.aliases_input and cls.keeps_static_shape(context)
        return 0 if is_same and knows_values(context, 1) else None

    @classmethod
    def undoes(cls, context: InferenceContext, argument: InferenceContext) -> bool:
        """True if output 0 is, bit by bit, input 0 of the node of this op that makes input 0, as
        far as static shapes and values show; both then cannot fail. Default: a fact.
        """
        return cls.algebra.involutive

    @classmethod
    def keeps_static_shape(cls, context: InferenceContext) -> bool:
        """True if output 0 has the static shape of input 0, which is known."""
        shape = context.inputs[0]
        return shape.is_full and cls.shape(context)[0].dims == shape.dims

    function: ClassVar[str | Callable[..., Any] | None] = None
    kernel: ClassVar[Callable[..., Any] | None] = None
    adapter: ClassVar[Callable[[Kernel, Node, ModuleType], Kernel] | None] = None
    gradient: ClassVar[Callable[..., Any] | None] = None
    batching: ClassVar[Callable[..., Any] | None] = None

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        """The kernel of a node with its attributes: a callable over arrays of namespace `xp`.

        By default, it calls `function(*inputs)` or `kernel(xp, *arguments, *inputs)`.
        """
        function, kernel = cls.function, cls.kernel
        bound: Kernel
        if function is not None:
            bound = getattr(xp, function) if isinstance(function, str) else function
        elif kernel is not None:
            bound = cls._bound(kernel, node, xp)
        else:
            raise TypeError(f"{cls.name} has no kernel")
        return bound if cls.adapter is None else cls.adapter(bound, node, xp)

    @classmethod
    def _bound(cls, kernel: Callable[..., Any], node: Node, xp: ModuleType) -> Kernel:
        """A function declared as `kernel` is, with the attributes of a node."""
        return partial(kernel, xp, *[cls._argument(node, name) for name in _arguments(kernel)])

    @classmethod
    def _argument(cls, node: Node, name: str) -> Any:
        """An attribute, the node, or what a function of the class derives from it."""
        if name in cls.parsed().attrs:
            return node.attr(name)
        return node if name == "node" else getattr(cls, name)(node)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        """The kernel of a stateful node: a callable over a Step and the inputs."""
        if cls.kernel is not None:
            return cls.bind(node, xp)
        run = cls.run
        return lambda step, *inputs: run(step, node, *inputs)

    @classmethod
    def bind_functions(cls, node: Node, xp: ModuleType, functions: Sequence[Any]) -> Kernel:
        """The kernel of a node that combines elements by the `ScalarFunction`s that it names."""
        raise TypeError(f"{cls.name} combines nothing")

    @classmethod
    def run(cls, step: Step, node: Node, *inputs: Any) -> Any:
        """Compute the outputs of a stateful node."""
        raise TypeError(f"{cls.name} has no kernel")

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        """Infer the static shapes of the outputs. Default: unknown.

        Raises ShapeError for inputs that cannot fit.
        """
        return [UNKNOWN_SHAPE] * context.output_count

    @classmethod
    def shape_slots(cls, node: Node) -> Sequence[int]:
        """The inputs that give every output its shape if their shapes are equal. Default: none."""
        return ()

    @classmethod
    def flops(cls, inputs: Sequence[Dims], outputs: Sequence[Dims]) -> float:
        """Estimate the floating-point operations of a node, for the cost model.

        Default: one per element of the largest input or output.
        """
        return max(map(prod, [*inputs, *outputs]), default=0)


# the class of an op by name; None for an unknown op
lookup: Final[Callable[[str], type[Op] | None]] = registry.lookup


def define_op(module: str, name: str, base: type[Op], doc: str, **facts: Any) -> None:
    """Define an op of a module that differs from its base in some facts alone."""
    type(name, (base,), {"__module__": module, "__doc__": doc, **facts})


def _arguments(kernel: Callable[..., Any]) -> Sequence[str]:
    """The names between `xp` and the slash in the parameters of a kernel."""
    code = kernel.__code__
    positional = code.co_varnames[: code.co_posonlyargcount]
    return positional[positional.index("xp") + 1 :] if positional else ()


def numpy_kernel(node: Node, op: type[Op]) -> Kernel:
    """The kernel of a node over NumPy arrays."""
    return bound_kernel(node, op, np)


def bound_kernel(node: Node, op: type[Op], xp: ModuleType) -> Kernel:
    """The kernel of a node over arrays of `xp`.

    That of an op that cannot run raises Unsupported. Raises ExecutionError, with the node, for
    attributes that the op rejects: files contain any.
    """
    if not op.compilation.runnable:
        return partial(_reject_execution, node)
    try:
        return op.prepare(node, xp) if op.effects.stateful else op.bind(node, xp)
    except OpError as error:
        message, hint, code = error.message, error.hint, error.code or "CFG705"
        raise ExecutionError(message, node=node, hint=hint, code=code) from error
    except CfgraphError as error:
        error.node = error.node or node.name
        raise
    except (*KERNEL_FAILURES, KeyError) as error:
        message = f"{node.op} rejects its attributes: {str(error) or type(error).__name__}"
        raise ExecutionError(message, node=node, code="CFG705") from error


def _reject_execution(node: Node, *_: object) -> None:
    """Raise Unsupported, as the kernel of a node whose op has none."""
    hint = "feed its outputs, or what a loop around it returns; or fetch what needs neither"
    raise Unsupported(f"no kernel for {node.op}", node=node, hint=hint, code="CFG701")


def knows_values(context: InferenceContext, first: int) -> bool:
    """True if the values of all inputs from a slot on are statically known."""
    return all(context.value(slot) is not None for slot in range(first, len(context.inputs)))


class SameShape(Op, abstract=True):
    """An op whose outputs all have the shape of input 0."""

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[0]] * context.output_count

    @classmethod
    def shape_slots(cls, node: Node) -> Sequence[int]:
        return (0,)


class Elementwise(Op, abstract=True):
    """A broadcasting op."""

    # the kernel of complex numbers, where that of real numbers differs
    complex_kernel: ClassVar[Callable[..., Any] | None] = None
    batching = staticmethod(broadcasting)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if cls.complex_kernel is not None and node.attr("T").is_complex:
            return partial(cls.complex_kernel, xp)
        return super().bind(node, xp)

    @classmethod
    def can_fail(cls, node: Node) -> bool:
        return False

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        result = context.inputs[0]
        for shape in context.inputs[1:]:
            result = result.broadcast(shape)
        return [result]

    @classmethod
    def shape_slots(cls, node: Node) -> Sequence[int]:
        return range(len(node.inputs))


def role_of(node: Node) -> Role | None:
    """The role of a node's op, or None for an ordinary op."""
    return ROLES[node.op]


def function_calls(name: str) -> FunctionCalls:
    """The functions that an op calls; none for an unknown op."""
    op = lookup(name)
    return op.calls if op else FunctionCalls()


def is_functional(graph: Graph, nodes: Iterable[Node]) -> bool:
    """True if one of the nodes calls a function that must be lowered before a run."""
    ops = {node.op for node in nodes}
    return any(op in graph.functions or _needs_lowering(lookup(op)) for op in ops)


def calls_functions(graph: Graph) -> bool:
    """True if a node of the graph is functional or calls a function."""
    return any(op in graph.functions or function_calls(op).kind for op in graph.ops)


def contains_op(graph: Graph, *kinds: type[Op]) -> bool:
    """True if a node of the graph has a known op that is a subclass of one of `kinds`."""
    ops = map(lookup, graph.ops)
    return any(op is not None and issubclass(op, kinds) for op in ops)


def is_cluster_call(op: type[Op] | None) -> bool:
    """True for an op that launches a compiled cluster."""
    return op is not None and op.calls.kind == "launch"


def _needs_lowering(op: type[Op] | None) -> bool:
    return op is not None and not op.compilation.runnable and bool(op.calls.kind)


def is_a(node: Node | BodyNode, *kinds: type[Op]) -> bool:
    """True for a node with a known op that is a subclass of one of `kinds`."""
    op = lookup(node.op)
    return op is not None and issubclass(op, kinds)


def is_stateful(node: Node | BodyNode) -> bool:
    """True for a node with a known op that reads or changes what outlives it."""
    op = lookup(node.op)
    return op is not None and op.effects.stateful


def back_edge_of(merge: Node) -> Node | None:
    """The NextIteration that a Merge reads, or None for the Merge of a conditional."""
    sources = (item.node for item in merge.inputs)
    return next((node for node in sources if role_of(node) is Role.NEXT_ITERATION), None)


def is_identity(node: Node) -> bool:
    """True for a node that forwards its values, whatever gradient it has."""
    op = lookup(node.op)
    return op is not None and op.aliasing.is_identity


def has_identity_gradient(node: Node) -> bool:
    """True for a node that forwards its values and, in reverse, their gradients.

    False for one that stops or prevents gradients, or names a custom gradient.
    """
    op = lookup(node.op)
    return (
        op is not None
        and op.aliasing.is_identity
        and op.gradient is identity_gradient
        and not node.attrs.get(CUSTOM_GRADIENT_ATTR)
    )


def strip_identities(x: Output) -> Output:
    """The tensor behind a chain of identity nodes: equal in value, possibly not in gradient.

    Accepts unverified graphs: the search ends at a node without inputs, and in a cycle.
    """
    steps, next_mark, mark = 0, 8, x
    while is_identity(x.node) and x.port < len(x.node.inputs):
        x = x.node.inputs[x.port]
        if x == mark:
            break
        steps += 1
        if steps == next_mark:
            next_mark, mark = 2 * next_mark, x
    return x


def strip_gradient_identities(x: Output, stops: Collection[Node] = ()) -> Output:
    """The tensor behind a chain of nodes that are identities in value and gradient.

    For tensors that may be differentiated: a value that a gradient saves, an update of a variable.
    No gradient passes the nodes in `stops`.
    """
    while has_identity_gradient(x.node) and x.node not in stops:
        x = x.node.inputs[x.port]
    return x


def is_product(node: Node) -> bool:
    """True for a node that multiplies matrices, whose op therefore estimates its own flops."""
    op = lookup(node.op)
    return op is not None and op.flops.__func__ is not Op.flops.__func__  # type: ignore[attr-defined]


def has_effect(node: Node) -> bool:
    """True for a node that reads or writes state or does I/O, and for an unknown op."""
    op = lookup(node.op)
    return op is None or (op.effects.stateful and not op.effects.random and not makes_handle(node))


def may_write(node: Node | BodyNode) -> bool:
    """True for a stateful node that does not only read, and for an unknown op."""
    op = lookup(node.op)
    return op is None or (op.effects.stateful and not op.effects.reads_only)


def row_operation(node: Node) -> RowOperation:
    """The operation of a node on the rows of an array that a compiled list becomes, or empty."""
    op = lookup(node.op)
    operation = "" if op is None else op.compilation.row_operation
    is_general = operation in ("sum", "zeros")  # ops on lists and tensors
    return "" if is_general and node.attrs.get("T") is not variant else operation


def makes_handle(node: Node) -> bool:
    """True for a node whose only outputs are the handles of a variable, a table, or a queue."""
    types = node.output_types or ()
    return not node.inputs and bool(types) and all(dtype.is_handle for dtype in types)
