"""Facts about kernels of XLA agree with TensorFlow: their existence and their types."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pytest

from cfgraph.ir import registry
from cfgraph.ir.dtypes import DType
from cfgraph.ops.opdef.op import Op, lookup

pytestmark = [pytest.mark.interop, pytest.mark.slow]

tf = pytest.importorskip("tensorflow", reason="needs the extra `interop`")

DEVICE = "XLA_CPU_JIT"
WIDTHS = (8, 16, 32, 64)
ORDINARY = (
    *(f"{kind}{width}" for kind in ("int", "uint") for width in WIDTHS),
    *("bool", "bfloat16", "float16", "float32", "float64", "complex64", "complex128"),
)


@cache
def kernels() -> Mapping[str, Mapping[str, set[str]]]:
    """The ops that XLA has kernels of, with the types that each attribute may be."""
    from tensorflow.python.framework import kernels as registered

    tf.function(lambda x: x + x, jit_compile=True)(1.0)  # they are there from the first use on
    found: dict[str, dict[str, set[str]]] = {}
    for kernel in registered.get_all_registered_kernels().kernel:
        if kernel.device_type == DEVICE:
            types = found.setdefault(kernel.op, {})
            for constraint in kernel.constraint:
                numbers = constraint.allowed_values.list.type
                types[constraint.name] = {DType.from_number(number).name for number in numbers}
    return found


def missing(op: type[Op]) -> set[str]:
    """The types that an op allows and XLA's kernel does not."""
    found: set[str] = set()
    for name, known in kernels()[op.name].items():
        attr = op.parsed().attrs.get(name)
        if attr is not None:
            allowed = {dtype.name for dtype in attr.allowed} if attr.allowed else set(ORDINARY)
            found |= allowed.intersection(ORDINARY) - known
    return found


def compiled() -> list[type[Op]]:
    ops = [lookup(name) for name in registry.op_names()]
    return [op for op in ops if op is not None and op.compiles() and not op.effects.is_input]


def test_xla_has_a_kernel_of_whatever_is_said_to_compile() -> None:
    assert compiled()
    assert not [op.name for op in compiled() if op.name not in kernels()]


def test_what_is_traceable_and_has_a_kernel_is_said_to_compile() -> None:
    ops = [op for op in map(lookup, kernels()) if op is not None and op.compilation.traceable]
    assert not [op.name for op in ops if not op.compiles()]


def test_the_types_without_a_kernel_are_named() -> None:
    said = {
        op.name: set(filter(None, op.compilation.uncompiled_types.split(", "))) for op in compiled()
    }
    assert said == {op.name: missing(op) for op in compiled()}
