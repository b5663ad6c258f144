"""The Op base class: signature, facts, and the hooks that compute, infer, and differentiate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    `host_inputs` and `constant_inputs` are places in the signature, where a list is one argument;
    `slots_of` says which inputs of a node they are. `host_outputs` are outputs in host memory.
    `traceable`: jax can trace the kernel, given the constant inputs as NumPy arrays; what is
    stateful or moves control is not, nor is text.

    A pure op gives `bind`, a stateful one `run` (or `prepare`). One output is returned bare,
    several as a tuple, none as None. Every value is a NumPy array or NumPy scalar of the dtype
    that the signature says; strings are object arrays of bytes, always arrays.
    """

    name: ClassVar[str]
    signature: ClassVar[str]
    attrs: ClassVar[str] = ""

    stateful: ClassVar[bool] = False
    commutes: ClassVar[bool] = False
    host_inputs: ClassVar[tuple[int, ...]] = ()
    host_outputs: ClassVar[tuple[int, ...]] = ()
    constant_inputs: ClassVar[tuple[int, ...]] = ()
    traceable: ClassVar[bool] = True
    runnable: ClassVar[bool] = True
    compiled: ClassVar[bool | None] = None  # TensorFlow's XLA has a kernel; None: if traceable
    uncompiled_types: ClassVar[str] = ""  # types that this kernel does not take, as in attrs
    random: ClassVar[bool] = False
    moves: ClassVar[bool] = False  # each element is one of the inputs' of that type, unchanged
    reads_only: ClassVar[bool] = False  # stateful, and changes nothing
    initializes: ClassVar[bool] = False  # gives input 0 its value, whatever it had
    is_input: ClassVar[bool] = False  # there to be fed; without an input of its own it must be
    is_identity: ClassVar[bool] = False  # output i is input i
    host_only: ClassVar[bool] = False  # only a CPU has a kernel, whatever the types
    shape_only: ClassVar[bool] = False  # depends on the shapes of its inputs alone
    bitwise: ClassVar[bool] = False  # depends on how numbers are stored, not on values alone
    handles: ClassVar[tuple[int, ...]] = ()  # outputs that are handles though their type is not
    reads_region: ClassVar[bool] = False  # reads of input 0 only what it gives
    aliases_input: ClassVar[bool] = False  # output 0 has the bytes of input 0, in another shape
    swap_role: ClassVar[str] = (
        ""  # push, pop: the stack of input 0 may be moved to the host and back
    )
    boolean_semantics: ClassVar[str] = (
        ""  # not, and, or, equal, differ, truth: what it says of its inputs
    )
    inlined: ClassVar[bool] = False  # calls functions, and is run and compiled with its caller
    does_io: ClassVar[bool] = False  # reads or writes files
    role: ClassVar[Role | None] = None

    _parsed: ClassVar[Signature | None] = None

    def __init_subclass__(cls, *, abstract: bool = False, name: str | None = None) -> None:
        if abstract:
            return
        cls.name = name or cls.__name__
        cls.traceable = cls.traceable and cls.runnable and not (cls.stateful or cls.role)
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
        return cls.traceable if cls.compiled is None else cls.compiled

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
    while op is not None and op.is_identity:
        x = x.node.inputs[x.port]
        op = lookup(x.node.op)
    return x
