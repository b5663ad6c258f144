"""The Op base class: signature, facts, and the hooks that compute, infer, and differentiate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from cfgraph.errors import CfgraphError
from cfgraph.ir import registry
from cfgraph.ir.functions import BodyNode
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ir.signature import Signature
from cfgraph.ops.opdef.facts import (
    AlgebraicFacts,
    Aliasing,
    CompilerSupport,
    FunctionCalls,
    HostPlacement,
    SideEffects,
)

if TYPE_CHECKING:
    from cfgraph.ops.opdef.shape_functions import InferenceContext
    from cfgraph.ops.opdef.step import Step

Kernel = Callable[..., Any]
# what a kernel raises where its inputs do not fit; anything else is a bug of ours
KERNEL_FAILURES: Final = (ValueError, TypeError, IndexError, ArithmeticError, MemoryError)
Dims = tuple[int, ...]


class OpError(CfgraphError):
    """A kernel refuses its inputs; the runtime adds the node, the frame and the device."""

    exit_code = 5


class Op:
    """The definition of one op. A subclass registers under its own name unless `abstract`.

    Facts are class attributes, one group each; a subclass that changes part of an inherited group
    writes `replace(Base.group, …)`. A pure op defines `kernel` or `bind`, a stateful one `run` or
    `prepare`. A single output is returned bare, several as a tuple, none as None. Every value is a
    NumPy array or NumPy scalar of the dtype of the signature; strings are always object arrays of
    bytes.
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
        if support.traceable and (not support.runnable or cls.effects.stateful or cls.role):
            cls.compilation = replace(support, traceable=False)
        cls._parsed = None
        registry.register(cls.name, cls)

    @classmethod
    def parsed(cls) -> Signature:
        """The parsed signature, made once."""
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
        """The inputs of a node that belong to arguments, given by their places in the signature.

        Raises ValueError where an attribute of the node that counts inputs is missing.
        """
        if not arguments:
            return frozenset()
        ends = cls.parsed().input_ends(node.attrs)
        starts = [0, *ends]
        return frozenset(slot for place in arguments for slot in range(starts[place], ends[place]))

    kernel: ClassVar[Callable[..., Any] | None] = None
    gradient: ClassVar[Callable[..., Any] | None] = None

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        """The kernel of a node, attributes decoded: a callable over arrays of namespace `xp`.

        The default takes `kernel(xp, *inputs)`.
        """
        kernel = cls.kernel
        if kernel is None:
            message = f"{cls.name} has no kernel"
            raise TypeError(message)
        return lambda *inputs: kernel(xp, *inputs)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        """The kernel of a stateful node: a callable over a Step and the inputs."""
        run = cls.run
        return lambda step, *inputs: run(step, node, *inputs)

    @classmethod
    def run(cls, step: Step, node: Node, *inputs: Any) -> Any:
        """Compute a stateful node's outputs."""
        message = f"{cls.name} has no kernel"
        raise TypeError(message)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        """The static shapes of the outputs; unknown unless a subclass says more.

        May raise ValueError where the inputs cannot fit.
        """
        return [UNKNOWN_SHAPE] * context.output_count

    @classmethod
    def flops(cls, inputs: Sequence[Dims], outputs: Sequence[Dims]) -> float:
        """About how many operations a node does on inputs of these sizes, for the cost model.

        One an element of the largest, unless a subclass says more.
        """
        return max(map(prod, [*inputs, *outputs]), default=0)


# the class of an op, or None
lookup: Final[Callable[[str], type[Op] | None]] = registry.lookup


def role_of(node: Node) -> Role | None:
    """The role of a node's op; None for an ordinary one."""
    found = lookup(node.op)
    return found.role if found else None


def function_calls(name: str) -> FunctionCalls:
    """The functions that an op calls; none for an unknown op."""
    op = lookup(name)
    return op.calls if op else FunctionCalls()


def is_a(node: Node | BodyNode, *kinds: type[Op]) -> bool:
    """True for a node whose op is one of some kinds; false where nothing is known of it."""
    found = lookup(node.op)
    return found is not None and issubclass(found, kinds)


def back_edge_of(merge: Node) -> Node | None:
    """The NextIteration that a Merge of a loop reads; None for one that joins branches."""
    sources = (item.node for item in merge.inputs)
    return next((node for node in sources if role_of(node) is Role.NEXT_ITERATION), None)


def strip_identities(x: Output) -> Output:
    """The tensor that another one is, through nodes that hand it on."""
    op = lookup(x.node.op)
    while op is not None and op.aliasing.is_identity:
        x = x.node.inputs[x.port]
        op = lookup(x.node.op)
    return x
