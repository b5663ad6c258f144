"""Facts of ops, in groups: immutable, with the defaults of an ordinary pure op."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cfgraph.ir.attrs import Func, functions_in

SwapRole = Literal["", "push", "pop"]
RowOperation = Literal[
    "",
    "all",
    "count",
    "empty",
    "get",
    "of",
    "pop",
    "push",
    "put",
    "reserve",
    "shape",
    "sum",
    "take",
    "zeros",
]
BooleanSemantics = Literal["", "not", "and", "or", "equal", "differ", "truth"]
ProductRole = Literal["", "computes", "adds", "slices"]
FileAccess = Literal["", "read", "write"]
CallKind = Literal["", "if", "case", "while", "for", "call", "gradient", "launch", "combine"]


@dataclass(frozen=True)
class SideEffects:
    """State, randomness, and input/output of an op."""

    stateful: bool = False  # reads or changes what outlives the node
    random: bool = False  # draws random numbers
    reads_only: bool = False  # stateful, and changes nothing
    only_checks: bool = False  # stateful because it may fail; changes nothing
    initializes: bool = False  # sets the variable of input 0, whatever its value was
    atomic: bool = False  # one access that needs no lock: a read, or one of a resource of the run
    per_iteration: bool = False  # its resource is found by name in one iteration of one run
    blocking: bool = False  # may wait for another node to change its resource
    does_io: bool = False  # reads or writes files
    is_input: bool = False  # meant to be fed; must be fed if it has no input of its own


@dataclass(frozen=True)
class HostPlacement:
    """Devices that an op needs. The signature marks the arguments in host memory."""

    host_only: bool = False  # only a CPU has a kernel, for every type
    handle_outputs: tuple[int, ...] = ()  # outputs that are handles though their type is not
    swap_role: SwapRole = ""  # the stack of input 0 may be swapped to the host and back
    reads_device: bool = False  # the value depends on the device of the node


@dataclass(frozen=True)
class CompilerSupport:
    """Kernels of an op: in cfgraph, traced by jax, and in TensorFlow's XLA.

    jax traces a kernel with the constant inputs of its signature as NumPy arrays. An op that is
    stateful, has a role, cannot run, runs on the host only, or has a string or variant in its
    signature is never traceable.
    """

    runnable: bool = True  # cfgraph has a kernel
    traceable: bool = True  # jax can trace the kernel
    # the same for a stateful op, on variables or random numbers, or one that only checks
    traces_effects: bool = False
    compiled: bool | None = None  # TensorFlow's XLA has a kernel; None: if traceable
    uncompiled_types: str = ""  # types that the kernel of XLA does not take, as in attrs
    row_operation: RowOperation = (
        ""  # operation on the rows of an array that a compiled list becomes
    )


@dataclass(frozen=True)
class Aliasing:
    """Outputs of an op that are, or consist of, its inputs."""

    is_identity: bool = False  # output i is input i
    preserves_elements: bool = False  # each element is an unchanged one of an input of that type
    aliases_input: bool = False  # output 0 has the bytes of input 0, in another shape
    reads_region: bool = False  # reads only that region of input 0 that it returns
    reuses_input: bool = False  # its kernel in NumPy writes into `out`, which may be input 0


@dataclass(frozen=True)
class AlgebraicFacts:
    """Algebraic properties of an op as a function."""

    commutes: bool = False
    shape_only: bool = False  # depends only on the shapes of its inputs
    bitwise: bool = False  # depends on how numbers are stored, not only on their values
    boolean_semantics: BooleanSemantics = ""  # meaning as a predicate of predicates
    involutive: bool = False  # f(f(x)) is x
    idempotent: bool = False  # f(f(x)) is f(x)
    # the number that, as the other operand, leaves input 0 (or 1) bit by bit as it is, unless it
    # is complex
    neutral_second: float | None = None
    neutral_first: float | None = None
    product_role: ProductRole = ""  # in joint products, which the reader computes


@dataclass(frozen=True)
class FunctionCalls:
    """Functions that an op calls."""

    kind: CallKind = ""  # empty: calls none
    functions: tuple[str, ...] = ()  # attributes that name the functions
    first_argument: int = 0  # input slot of the functions' first argument
    inlined: bool = False  # run and compiled together with its caller

    @property
    def is_loop(self) -> bool:
        """True if it calls a function for each iteration."""
        return self.kind in ("while", "for")

    def named_in(self, attrs: Mapping[str, Any]) -> list[Func]:
        """The functions that the attributes of a node name, in the order of `functions`."""
        return [func for key in self.functions for func in functions_in(attrs.get(key))]
