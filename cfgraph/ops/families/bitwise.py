"""Bitwise ops on integers."""

from __future__ import annotations

import operator
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ops.families.arithmetic import BinaryOp
from cfgraph.ops.opdef.elementwise import Elementwise
from cfgraph.ops.opdef.facts import AlgebraicFacts
from cfgraph.ops.opdef.op import Kernel
from cfgraph.ops.opdef.type_sets import INTEGERS, one_of


class BitwiseAnd(BinaryOp):
    """Bitwise AND of two integer tensors."""

    attrs = one_of(INTEGERS)
    algebra = AlgebraicFacts(commutes=True)
    function = operator.and_


class BitwiseOr(BinaryOp):
    """Bitwise OR of two integer tensors."""

    attrs = one_of(INTEGERS)
    algebra = AlgebraicFacts(commutes=True)
    function = operator.or_


class BitwiseXor(BinaryOp):
    """Bitwise exclusive OR of two integer tensors."""

    attrs = one_of(INTEGERS)
    algebra = AlgebraicFacts(commutes=True)
    function = operator.xor


class BitShift(BinaryOp, abstract=True):
    """A shift of bits by y, clipped to 0 through the bit width minus 1."""

    attrs = one_of(INTEGERS)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T").numpy
        zero, most = dtype.type(0), dtype.type(8 * dtype.itemsize - 1)
        move: Any = cls.function
        return lambda x, y: move(x, xp.clip(y, zero, most))


class LeftShift(BitShift):
    """Shift to the left, filled with zeros."""

    function = operator.lshift


class RightShift(BitShift):
    """Shift to the right: arithmetic for signed types, logical for unsigned types."""

    function = operator.rshift


class Invert(Elementwise):
    """Bitwise complement."""

    signature = "x: T -> y: T"
    attrs = one_of(INTEGERS)
    function = operator.invert


class PopulationCount(Elementwise):
    """Number of set bits of each element."""

    signature = "x: T -> y: uint8"
    attrs = one_of(INTEGERS)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")
        bits = np.dtype(f"u{dtype.numpy.itemsize}")
        return lambda x: xp.bitwise_count(x.view(bits)).astype(np.uint8)
