"""Fused ops: products with an epilogue, normalization with an activation, chains of unary ops."""

import numpy as np

from cfgraph.ir import registry
from tests.ops.harness import case

F32, F64 = np.float32, np.float64
random = np.random.default_rng(37)


def f32(*shape):
    return random.standard_normal(shape).astype(F32)


NAMES = ("BiasAdd", "Relu", "Relu6", "Elu", "Tanh", "Sigmoid", "LeakyRelu")
ENDINGS = [["BiasAdd"], *(["BiasAdd", name] for name in NAMES[1:])]
NORM = [f32(5), f32(5), f32(5), np.abs(f32(5)) + F32(0.5)]
WINDOW = {"strides": [1, 2, 1, 1], "padding": "SAME"}
NEAR = {"rtol": 1e-4, "atol": 1e-5}
PRODUCTS = [
    *(
        case(
            "_FusedMatMul",
            [f32(4, 3), f32(3, 5), f32(5)],
            {"num_args": 1, "fused_ops": ops},
            **NEAR,
        )
        for ops in ENDINGS
    ),
    case(
        "_FusedMatMul",
        [f32(3, 4), f32(5, 3), f32(5)],
        {"num_args": 1, "fused_ops": ["BiasAdd"], "transpose_a": True, "transpose_b": True},
        **NEAR,
    ),
    *(
        case(
            "_FusedConv2D",
            [f32(2, 6, 5, 3), f32(3, 3, 3, 5), f32(5)],
            {"num_args": 1, "TArgs": (F32,), "fused_ops": ops, **WINDOW},
            **NEAR,
        )
        for ops in ENDINGS
        if ops[-1] not in ("Tanh", "Sigmoid")
    ),
    *(
        case(
            "_FusedConv2D",
            [f32(2, 6, 5, 3), f32(3, 3, 3, 5), *NORM],
            {
                "num_args": 4,
                "TArgs": (F32,) * 4,
                "fused_ops": ["FusedBatchNorm", *more],
                "epsilon": 0.001,
                **WINDOW,
            },
            **NEAR,
        )
        for more in ([], ["Relu"], ["LeakyRelu"])
    ),
    *(
        case("_UnaryOpsComposition", [np.abs(f32(3, 4)).astype(t)], {"op_names": names}, **NEAR)
        for t in (F32, F64)
        for names in (["Sqrt", "Neg", "Tanh"], ["Log", "Exp"], ["Square", "Relu6"])
    ),
]
IMAGE, FILTER, EDGES = f32(2, 3, 4, 3), f32(2, 2, 3, 5), [[0, 0], [1, 1], [2, 1], [0, 0]]
STEPS = {"strides": [1, 1, 1, 1], "padding": "VALID"}


def padded(op="FusedPadConv2D", edges=EDGES, size=(), kind=F32, error=False, **attrs):
    sizes = [np.array(size, np.int32)] if size else []
    # one image: TensorFlow returns the result of the first for each image of a batch
    inputs = [IMAGE[:1].astype(kind), *sizes, np.array(edges, np.int32), FILTER.astype(kind)]
    # TensorFlow sums half precision in half precision
    near = {"rtol": 1e-2, "atol": 2e-2} if kind == np.float16 else NEAR
    return case(op, inputs, {"mode": "REFLECT", **STEPS, **attrs}, error=error, **near)


RESIZED = "FusedResizeAndPadConv2D"
PRODUCTS += [
    padded(),
    padded(kind=F64, mode="SYMMETRIC", **WINDOW),
    padded(edges=[[0, 0], [3, 0], [0, 0], [0, 0]], error=True),
    *(padded(RESIZED, size=(5, 7), kind=kind, mode="SYMMETRIC") for kind in (F32, np.float16)),
    padded(RESIZED, size=(2, 3), resize_align_corners=True, padding="SAME", edges=[[0, 0]] * 4),
    padded(RESIZED, size=(0, 3), error=True),
    padded(RESIZED, size=(5, 7), edges=[[0, 0], [9, 0], [0, 0], [0, 0]], error=True),
]
CASES = PRODUCTS
NO_GRADIENT = dict.fromkeys(
    [
        *("_FusedMatMul", "_FusedConv2D", "_UnaryOpsComposition"),
        *("FusedPadConv2D", "FusedResizeAndPadConv2D"),
    ],
    "TensorFlow has none",
)
# those of oneDNN are computed as the ordinary ops that they replace
_ONEDNN = [name for name in registry.op_names() if name.startswith("_Mkl")]
WITHOUT_CASE = dict.fromkeys(
    ["_FusedBatchNormEx", "_FusedDepthwiseConv2dNative", *_ONEDNN],
    "TensorFlow has kernels with oneDNN or on a GPU only; see the tests of unfusing and of dumps",
)
