from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cfgraph.errors import CfgraphError
from cfgraph.ir import registry
from cfgraph.ir.shapes import Shape
from cfgraph.ops.index import FAMILIES
from cfgraph.ops.opdef.op import lookup
from tests.conformance import recorded
from tests.ops import harness
from tests.ops.harness import (
    UNRECORDED,
    Case,
    assert_agrees,
    assert_same,
    few_of_each_op,
    infer,
    knowledge,
    run_ours,
)

REFUSED = (CfgraphError, *harness.REFUSED)


def of_each_op(
    keep: Callable[[Case], bool] = lambda item: True, few: int | None = None
) -> pytest.MarkDecorator:
    """Parametrize over ops: the cases of one op in one family are one test."""
    groups: dict[str, list[Case]] = {}
    for item in harness.all_cases():
        if keep(item):
            groups.setdefault(f"{item.family}-{item.op}", []).append(item)
    return pytest.mark.parametrize("cases", few_of_each_op(groups, few or sys.maxsize))


def check(cases: list[Case], promise: Callable[[Case], None]) -> None:
    """Check a promise for every case, and report all that break it."""
    broken = {}
    for item in cases:
        try:
            promise(item)
        except Exception as error:
            broken[f"{item.place[0]} {item.label}"] = error
    if broken:
        lines = [f"{label}\n    {type(e).__name__}: {e}" for label, e in broken.items()]
        message = f"{len(broken)} of {len(cases)} cases\n" + "\n".join(lines)
        raise AssertionError(message) from next(iter(broken.values()))


def is_good(item: Case) -> bool:
    return not item.error


def is_pure(item: Case) -> bool:
    op = lookup(item.op)
    return op is not None and not op.effects.stateful


def has_scalar(item: Case) -> bool:
    return any(not array.ndim for array in item.inputs)


# what TensorFlow says where it has no kernel, on this processor at least: some run oneDNN's
LACKING = (
    "No OpKernel was registered",
    "Op type not registered",
    "only supports the NHWC tensor format on the CPU",
    "only supports NHWC on device type CPU",
    "CPU implementations do not yet support dilation rates",
    "Current kernel implementation does not support dilations",
)


@pytest.mark.interop
@of_each_op(few=8)
def test_the_kernel_agrees_with_tensorflow(cases: list[Case]) -> None:
    if harness.tensorflow() is None:
        pytest.skip("TensorFlow is not installed (extra `interop`)")
    theirs = {item: harness.tf_result(item) for item in cases}
    here = [item for item in cases if not any(words in str(theirs[item]) for words in LACKING)]
    check(here, lambda item: assert_agrees(item, theirs[item]))
    if not here:
        pytest.skip("TensorFlow has no kernel for these types on a CPU")


@of_each_op(lambda item: item.error)
def test_what_tensorflow_refuses_is_refused(cases: list[Case]) -> None:
    def refused(item: Case) -> None:
        try:
            run_ours(item)
            infer(item, [Shape(a.shape) for a in item.inputs], values=True)
        except REFUSED:
            return
        raise AssertionError("this is not refused")

    check(cases, refused)


@of_each_op(is_good)
def test_outputs_are_as_signature_and_shape_function_say(cases: list[Case]) -> None:
    def promised(item: Case) -> None:
        outputs = run_ours(item)
        assert_declared_types(item, outputs)
        assert_inferred_shapes(item, outputs)
        if is_pure(item) and has_scalar(item):
            assert_same_from_scalar_arrays(item, outputs)

    check(cases, promised)


def assert_declared_types(item: Case, outputs: list[Any]) -> None:
    types = harness.node_of(item).output_types
    assert types is not None
    assert len(outputs) == len(types)
    for output, dtype in zip(outputs, types, strict=True):
        if dtype.is_ref or dtype.kind in ("resource", "variant"):
            continue
        assert isinstance(output, np.ndarray | np.generic)
        assert output.dtype == dtype.numpy
        if dtype.kind == "string":
            assert isinstance(output, np.ndarray)
            assert all(isinstance(text, bytes) for text in output.ravel())


def assert_inferred_shapes(item: Case, outputs: list[Any]) -> None:
    for shapes, values in knowledge(item):
        inferred = infer(item, shapes, values=values)
        assert len(inferred) == len(outputs)
        for shape, output in zip(inferred, outputs, strict=True):
            actual = getattr(output, "shape", None)
            known = f"of {shapes}{' with values' if values else ''}"
            assert actual is None or shape.accepts(actual), f"{shape} {known}, but {actual}"


def assert_same_from_scalar_arrays(item: Case, outputs: list[Any]) -> None:
    for output, again in zip(outputs, run_ours(item, zero_d=True), strict=True):
        if isinstance(output, np.ndarray | np.generic):
            assert_same(item, again, output)


def test_families_of_the_sweep_have_no_recorded_op() -> None:
    recorded_ops = {op for case in recorded.cases() for op in case["ops"]}
    ops = [op for family in UNRECORDED for op in FAMILIES[family].split()]
    assert not recorded_ops & {*ops}


def test_every_op_has_a_case() -> None:
    known = {item.op for item in harness.all_cases()}
    for module in harness.modules().values():
        known |= set(getattr(module, "WITHOUT_CASE", {}))
    ops = [(name, lookup(name)) for name in registry.op_names()]
    missing = [
        name
        for name, op in ops
        if op and op.compilation.runnable and not op.role and name not in known
    ]
    assert not missing
