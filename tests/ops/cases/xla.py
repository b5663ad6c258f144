"""Operations of XLA that call no function; TensorFlow runs them in compiled functions alone.

`tests/conformance/xla_programs.py` records their values.
"""

import numpy as np

from cfgraph.proto import xla_dimensions_pb2
from tests.ops.harness import case

F32, I32 = np.float32, np.int32
X = np.arange(24, dtype=F32).reshape(2, 3, 4)
MATRIX = np.array([[2, 1, 0], [1, 3, 1], [0, 1, 4]], F32)
WITHOUT_CASE = dict.fromkeys(
    (
        "XlaReduce",
        "XlaReduceWindow",
        "XlaScatter",
        "XlaSelectAndScatter",
        "XlaVariadicReduce",
        "XlaVariadicReduceV2",
        "XlaVariadicSort",
    ),
    "calls a function; tests/conformance/test_xla_operations.py runs it",
)


def ints(*values):
    return np.array(values, I32)


def numbers(kind, **fields):
    message = getattr(xla_dimensions_pb2, f"{kind}DimensionNumbers")(**fields)
    return {"dimension_numbers": message.SerializeToString()}


def same_values(ours, theirs):
    """Compare the values: the signs of vectors, and vectors of a null space, are not defined."""
    np.testing.assert_allclose(ours[0], theirs[0], 2e-5, 1e-5)
    assert [x.shape for x in ours] == [x.shape for x in theirs]


DOT = numbers("Dot", lhs_contracting_dimensions=[2], rhs_contracting_dimensions=[0])
DOT |= {"precision_config": ""}
GATHER = numbers(
    "Gather", offset_dims=[1, 2], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1
) | {"indices_are_sorted": False}
CONV = numbers(
    "Convolution",
    input_feature_dimension=2,
    kernel_output_feature_dimension=2,
    kernel_input_feature_dimension=1,
    output_feature_dimension=2,
    **{
        f"{part}_spatial_dimensions": [0 if part == "kernel" else 1]
        for part in ("input", "kernel", "output")
    },
) | {"precision_config": ""}
GEOMETRY = [ints(2), np.array([[1, 0]], I32), ints(1), ints(1), np.int32(1)]

CASES = [
    case("XlaDot", [X, np.ones((4, 2), F32)], DOT),
    case("XlaDot", [X, np.ones((3, 2), F32)], DOT, error=True),
    case(
        "XlaDotV2",
        [X.astype(np.int8), np.ones((4, 2), np.int8)],
        DOT | {"preferred_element_type": np.int32},
    ),
    case("XlaConv", [X, np.ones((2, 4, 3), F32), *GEOMETRY], CONV),
    case("XlaConv", [X, np.ones((2, 3, 3), F32), *GEOMETRY], CONV, error=True),
    case(
        "XlaConvV2", [X, np.ones((2, 4, 3), F32), *GEOMETRY], CONV | {"preferred_element_type": F32}
    ),
    case("XlaGather", [X, np.array([[1], [0], [5]], I32), ints(1, 2, 4)], GATHER),
    case("XlaGather", [X, np.array([[1]], I32), ints(1, 4, 4)], GATHER, error=True),
    case("XlaPad", [X, F32(7), ints(1, 0, -1), ints(0, 2, 0), ints(0, 1, 2)]),
    case("XlaPad", [X, F32(7), ints(0, 0, 0), ints(0, 0, 0), ints(0, -1, 0)], error=True),
    case("XlaBroadcastHelper", [X, np.ones(3, F32), ints(1)]),
    case("XlaBroadcastHelper", [X, np.ones(3, F32), ints(5)], error=True),
    case("XlaEinsum", [X[0], MATRIX], {"equation": "ij,ik->jk"}),
    case("XlaOptimizationBarrier", [X, ints(1, 2)], {"T": (F32, I32)}),
    case("XlaSharding", [X]),
    case("XlaReducePrecision", [X / 7], {"exponent_bits": 5, "mantissa_bits": 3}),
    case("XlaReducePrecision", [X], {"exponent_bits": 0, "mantissa_bits": 3}, error=True),
    case("XlaSort", [-X]),
    case("XlaKeyValueSort", [-X, X.astype(I32)]),
    case("XlaKeyValueSort", [X, X[0]], error=True),
    case(
        "XlaSelfAdjointEig",
        [MATRIX],
        {"lower": True, "max_iter": 9, "epsilon": 1e-5},
        compare=same_values,
    ),
    case("XlaSelfAdjointEig", [X], {"lower": True, "max_iter": 9, "epsilon": 1e-5}, error=True),
    case(
        "XlaSelfAdjointEig",
        [np.eye(2, dtype=I32)],
        {"lower": True, "max_iter": 9, "epsilon": 1e-5},
        error=True,
    ),
    case(
        "XlaSvd",
        [np.eye(2, dtype=I32)],
        {"max_iter": 9, "epsilon": 1e-5, "precision_config": ""},
        error=True,
    ),
    case(
        "XlaSvd",
        [X],
        {"max_iter": 9, "epsilon": 1e-5, "precision_config": ""},
        compare=same_values,
    ),
    *(
        case(
            "XlaRngBitGenerator",
            [I32(algorithm), np.arange(size, dtype=np.uint64), ints(2, 3)],
            error=error,
        )
        for algorithm, size, error in (
            (1, 3, False),
            (2, 2, False),
            (3, 3, False),
            (2, 3, True),
            (9, 2, True),
        )
    ),
]
OUR_GRADIENT = {"XlaOptimizationBarrier": "TensorFlow has none"}
NO_GRADIENT = dict.fromkeys(
    [
        *("XlaBroadcastHelper", "XlaConv", "XlaConvV2", "XlaDot", "XlaGather", "XlaKeyValueSort"),
        *("XlaPad", "XlaReducePrecision", "XlaSelfAdjointEig", "XlaSort", "XlaSvd"),
    ],
    "TensorFlow has none",
)
