from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cfgraph.errors import CfgraphError
from cfgraph.ir import registry
from cfgraph.ir.shapes import Shape
from cfgraph.ops.op import lookup
from tests.ops import harness
from tests.ops.harness import Case, assert_agrees, assert_same, infer, knowledge, run_ours

REFUSED = (CfgraphError, *harness.REFUSED)


def every(keep: Any = lambda item: True) -> pytest.MarkDecorator:
    found = [item for cases in harness.families().values() for item in cases if keep(item)]
    ids = [f"{item.family}-{item.place[0]}-{item.label}" for item in found]
    return pytest.mark.parametrize("item", found, ids=ids)


def is_good(item: Case) -> bool:
    return not item.error


@pytest.mark.interop
@every()
def test_the_kernel_agrees_with_tensorflow(item: Case) -> None:
    if harness.tensorflow() is None:
        pytest.skip("TensorFlow is not installed (extra `interop`)")
    theirs = harness.tf_result(item)
    if "No OpKernel was registered" in str(theirs):
        pytest.skip("TensorFlow has no kernel for this type on a CPU")
    assert_agrees(item, theirs)


@every(lambda item: item.error)
def test_what_tensorflow_refuses_is_refused(item: Case) -> None:
    def run() -> None:
        run_ours(item)
        infer(item, [Shape(a.shape) for a in item.inputs], values=True)

    with pytest.raises(REFUSED):
        run()


@every(is_good)
def test_the_kernel_keeps_the_types_that_the_signature_says(item: Case) -> None:
    outputs = run_ours(item)
    types = registry.output_types(harness.node_of(item))
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


@every(is_good)
def test_the_shape_function_accepts_what_the_kernel_gives(item: Case) -> None:
    outputs = run_ours(item)
    for shapes, values in knowledge(item):
        said = infer(item, shapes, values=values)
        assert len(said) == len(outputs)
        for shape, output in zip(said, outputs, strict=True):
            actual = getattr(output, "shape", None)
            known = f"of {shapes}{' with values' if values else ''}"
            assert actual is None or shape.accepts(actual), f"{shape} {known}, but {actual}"


@every(lambda item: is_good(item) and any(not a.ndim for a in item.inputs))
def test_scalars_may_come_as_arrays(item: Case) -> None:
    if (op := lookup(item.op)) and op.stateful:
        pytest.skip("a stateful op need not give the same twice")
    for ours, again in zip(run_ours(item), run_ours(item, zero_d=True), strict=True):
        if isinstance(ours, np.ndarray | np.generic):
            assert_same(item, again, ours)


def test_every_op_has_a_case() -> None:
    known = {item.op for cases in harness.families().values() for item in cases}
    for module in harness.modules().values():
        known |= set(getattr(module, "WITHOUT_CASE", {}))
    ops = [(name, lookup(name)) for name in registry.names()]
    missing = [name for name, op in ops if op and op.runnable and not op.role and name not in known]
    assert not missing
