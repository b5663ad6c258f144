"""Kernels round float16 and bfloat16 where TensorFlow does on a CPU: equal bits."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cfgraph

BF16 = ml_dtypes.bfloat16
Arrays = list[Any]

_REDUCTIONS = ("Sum", "Mean", "Prod", "EuclideanNorm", "Max")
_SHAPES = ((7,), (64,), (3001,), (5, 1601), (100, 19), (3, 17, 16), (3, 20, 19), (2, 3, 4, 5))
_UNARY = ("Sigmoid", "Tanh", "Rsqrt", "Sqrt", "Reciprocal", "Square", "Erf", "Exp", "Log1p")
_ACTIVATIONS = ("Softplus", "Softsign", "Elu", "Selu", "Relu6")
_FROM_RESULT = ("SigmoidGrad", "TanhGrad", "RsqrtGrad", "SqrtGrad", "InvGrad", "ReciprocalGrad")
_BINARY = ("Mul", "RealDiv", "Pow", "SquaredDifference", "FloorDiv", "DivNoNan", "Xlogy", "Xdivy")


@pytest.mark.parametrize("engine", ["tokens", "compiled"])
@pytest.mark.parametrize("name", ["a", "b"])
def test_a_program_rounds_as_recorded(name: str, engine: str, fixtures: Path) -> None:
    path = fixtures / "half_precision" / f"float16_rounding_{name}.pb"
    recorded = np.load(path.with_suffix(".npz"))
    graph = cfgraph.load(path)
    gradients = cfgraph.gradients(graph, ["a:0"], ["x:0", "y:0"], unconnected="zero")
    feeds = {"x:0": recorded["x"], "y:0": recorded["y"]}
    values = cfgraph.Session(graph, engine=engine).run(["a:0", "b:0", *gradients], feeds)
    for key, value in zip(("a", "b", "gx", "gy"), values, strict=True):
        np.testing.assert_array_equal(np.asarray(value, np.float64), recorded[key], key)


def normal(*shape: int) -> Callable[[Any, Any], Any]:
    return lambda rng, dtype: rng.normal(size=shape).astype(dtype)


def positive(*shape: int) -> Callable[[Any, Any], Any]:
    return lambda rng, dtype: np.exp(rng.normal(size=shape) / 4).astype(dtype)


def fixed(value: Any) -> Callable[[Any, Any], Any]:
    return lambda rng, dtype: np.asarray(value, np.int32)


def _cases() -> dict[str, tuple[str, list[Callable[[Any, Any], Any]]]]:
    cases = {}
    for op, shape in itertools.product(_REDUCTIONS, _SHAPES):
        make = positive if op == "Prod" else normal
        for count in range(1, len(shape) + 1):
            for axes in itertools.combinations(range(len(shape)), count):
                cases[f"{op}{shape}{axes}"] = op, [make(*shape), fixed(axes)]
    cases |= {op: (op, [normal(3, 40), fixed(1)]) for op in ("Cumsum", "Cumprod")}
    cases |= {op: (op, [positive(496)]) for op in (*_UNARY, *_ACTIVATIONS)}
    cases |= {f"{op} of both signs": (op, [normal(496)]) for op in ("Sigmoid", *_ACTIVATIONS)}
    cases |= {op: (op, [positive(496), normal(496)]) for op in _FROM_RESULT}
    names = ("EluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad", "Relu6Grad")
    cases |= {op: (op, [normal(496), normal(496)]) for op in names}
    cases |= {op: (op, [positive(496), positive(496)]) for op in _BINARY}
    cases |= {
        op: (op, [normal(7, 37)]) for op in ("Softmax", "LogSoftmax", "L2Loss", "BiasAddGrad")
    }
    op = "SoftmaxCrossEntropyWithLogits"
    return {**cases, op: (op, [normal(7, 37), positive(7, 37)])}


CASES = _cases()
# sizes are multiples of the 8 values of a packet: TensorFlow rounds what follows in other places
# NumPy's exp in float32 and Eigen's differ by one bit at one of some hundred values
_NEARLY = {("Exp", BF16)}


def ours(op: str, inputs: Arrays) -> Arrays:
    b = cfgraph.Builder()
    tensors = [b.const(array) for array in inputs]
    outputs = getattr(b, op)(*tensors)
    names = [out.name for out in (outputs if isinstance(outputs, tuple | list) else [outputs])]
    return cfgraph.Session(b.graph, engine="tokens").run(names)


def theirs(op: str, inputs: Arrays) -> Arrays:
    tf = pytest.importorskip("tensorflow", reason="the extra `interop` is not installed")
    from tensorflow.python.framework import op_def_registry

    names = [arg.name for arg in op_def_registry.get(op).input_arg]
    names = ["axis" if name == "reduction_indices" else name for name in names]
    arguments = {name: tf.constant(array) for name, array in zip(names, inputs, strict=True)}
    outputs = getattr(tf.raw_ops, op)(**arguments)
    return [out.numpy() for out in (outputs if isinstance(outputs, tuple | list) else [outputs])]


@pytest.mark.interop
@pytest.mark.parametrize("dtype", [np.float16, BF16], ids=["float16", "bfloat16"])
def test_kernels_have_the_bits_of_tensorflow(dtype: Any) -> None:
    rng, wrong = np.random.default_rng(0), []
    for name, (op, makers) in CASES.items():
        inputs = [make(rng, dtype) for make in makers]
        for mine, other in zip(ours(op, inputs), theirs(op, inputs), strict=True):
            a, b = np.asarray(mine, np.float64), np.asarray(other, np.float64)
            share = float(np.mean(~((a == b) | (np.isnan(a) & np.isnan(b)))))
            if share > (0.01 if (op, dtype) in _NEARLY else 0):
                wrong.append((name, share))
    assert not wrong
