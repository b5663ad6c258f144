"""Signatures, defaults and facts are those of TensorFlow's own registry."""

from __future__ import annotations

from typing import Any

import pytest

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.ir import registry
from cfgraph.ir.dtypes import DType
from cfgraph.ir.serde.attrs import decode_attr
from cfgraph.ir.signature import ArgDef, AttrDef

pytestmark = pytest.mark.interop

# TensorFlow has these only inside its runtime, or no longer
NOT_REGISTERED_THERE = {"Send", "Recv"}
# TensorFlow says they do, its kernels say they do not: unsigned differences wrap
DO_NOT_COMMUTE = {"ApproximateEqual"}


def _registry() -> Any:
    pytest.importorskip("tensorflow", reason="the extra `interop` is not installed")
    from tensorflow.python.framework import op_def_registry

    return op_def_registry


def _arg(proto: Any) -> tuple[Any, ...]:
    fixed = DType.from_number(proto.type) if proto.type else None
    kind = proto.type_list_attr or proto.type_attr or None
    return proto.name, fixed, kind, proto.number_attr or None, proto.is_ref


def _ours(arg: ArgDef) -> tuple[Any, ...]:
    return arg.name, arg.dtype, arg.type_attr, arg.count, arg.is_ref


def _same_default(ours: AttrDef, proto: Any) -> bool:
    if not proto.HasField("default_value"):
        return not ours.has_default
    if not ours.has_default:
        return False
    theirs = decode_attr(proto.default_value)
    if isinstance(theirs, float):
        return theirs == pytest.approx(ours.default, rel=1e-6, nan_ok=True)
    return bool(theirs == ours.default)


@pytest.mark.parametrize("name", list(registry.op_names()))
def test_a_signature_is_that_of_tensorflow(name: str) -> None:
    theirs = _registry().get(name)
    if theirs is None:
        assert name in NOT_REGISTERED_THERE
        return
    definition = registry.lookup(name)
    assert definition is not None
    ours = definition.parsed()
    assert [_ours(arg) for arg in ours.inputs] == [_arg(arg) for arg in theirs.input_arg]
    assert [_ours(arg) for arg in ours.outputs] == [_arg(arg) for arg in theirs.output_arg]
    assert set(ours.attrs) == {attr.name for attr in theirs.attr}
    for attr in theirs.attr:
        mine = ours.attrs[attr.name]
        assert mine.kind == attr.type, attr.name
        assert _same_default(mine, attr), attr.name
        if name.startswith("_Mkl"):  # made from ordinary ops only, whose limits they share here
            continue
        allowed = decode_attr(attr.allowed_values) if attr.HasField("allowed_values") else None
        assert set(mine.allowed or ()) == set(allowed or ()), attr.name
        assert mine.minimum == (attr.minimum if attr.has_minimum else None), attr.name
    assert definition.algebra.commutes == (theirs.is_commutative and name not in DO_NOT_COMMUTE)


def test_stateful_ops_are_stateful_here() -> None:
    wrong = []
    for name in registry.op_names():
        theirs = _registry().get(name)
        definition = registry.lookup(name)
        if (
            theirs is None
            or definition is None
            or not definition.compilation.runnable
            or definition.role
        ):
            continue
        if theirs.is_stateful and not definition.effects.stateful:
            wrong.append(name)
    assert not wrong
