"""Programs of the operations of XLA, and the recorder of TensorFlow's results.

`python -m tests.conformance.xla_programs` writes `fixtures/conformance/xla_operations.zip` in the
format of the recorded sessions. TensorFlow runs these operations only in compiled functions.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from tests.conformance.recorded import XLA_OPERATIONS

F32, I32, I64 = np.float32, np.int32, np.int64
Program = tuple[str, Callable[..., Any], list[Any]]


def programs() -> Iterator[Program]:
    """The programs: a name, a function of tensors, and its inputs."""
    yield from _products()
    yield from _windows()
    yield from _slices()
    yield from _reductions()
    yield from _sorts()
    yield from _loops()
    yield from _others()


def _normal(*shape: int, dtype: Any = F32, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def _integers(*shape: int, low: int = -9, high: int = 9, dtype: Any = I32) -> Any:
    return np.random.default_rng([*shape, high]).integers(low, high, shape).astype(dtype)


def _bytes(name: str, **fields: Any) -> bytes:
    from tensorflow.compiler.xla import xla_data_pb2

    data: bytes = getattr(xla_data_pb2, f"{name}DimensionNumbers")(**fields).SerializeToString()
    return data


def _function(body: Callable[..., Any], *types: Any) -> Any:
    """A concrete function of scalars."""
    import tensorflow as tf

    specs = [tf.TensorSpec([], dtype) for dtype in types]
    return tf.function(body, input_signature=specs, autograph=False).get_concrete_function()


def _pairs(body: Callable[..., Any], dtype: Any = F32) -> Any:
    return _function(body, dtype, dtype)


def _products() -> Iterator[Program]:
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops as xla

    dimensions = {
        "matmul": (
            {"lhs_contracting_dimensions": [1], "rhs_contracting_dimensions": [0]},
            (2, 3),
            (3, 4),
        ),
        "batch": (
            {
                "lhs_contracting_dimensions": [2],
                "rhs_contracting_dimensions": [1],
                "lhs_batch_dimensions": [1],
                "rhs_batch_dimensions": [0],
            },
            (2, 3, 4),
            (3, 4, 5),
        ),
        "two": (
            {"lhs_contracting_dimensions": [0, 2], "rhs_contracting_dimensions": [3, 1]},
            (2, 3, 4),
            (3, 4, 1, 2),
        ),
        "outer": ({}, (2,), (3,)),
    }
    for label, (fields, left, right) in dimensions.items():
        numbers = _bytes("Dot", **fields)

        def dot(x: Any, y: Any, numbers: bytes = numbers) -> Any:
            return xla.xla_dot(x, y, numbers, "")

        for dtype in (F32, I32, np.float16, ml_dtypes.bfloat16, np.complex64):
            kind = np.dtype(dtype).name
            yield (
                f"dot/{label}_{kind}",
                dot,
                [_normal(*left, dtype=dtype), _normal(*right, dtype=dtype)],
            )
        wide = [(np.int8, np.int32), (ml_dtypes.bfloat16, np.float32)]
        for dtype, result in wide:

            def dot_v2(x: Any, y: Any, numbers: bytes = numbers, result: Any = result) -> Any:
                return xla.xla_dot_v2(x, y, numbers, "", preferred_element_type=result)

            operands = [_integers(*shape, dtype=dtype) for shape in (left, right)]
            yield f"dot_v2/{label}_{np.dtype(dtype).name}", dot_v2, operands
    yield "einsum", lambda x, y: xla.xla_einsum(x, y, "ij,kj->ki"), [_normal(2, 3), _normal(4, 3)]
    layouts = {
        "nhwc": ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2)),
        "nchw": ((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3)),
        "mixed": ((3, 0, 2, 1), (1, 3, 2, 0), (1, 2, 3, 0)),
    }
    cases: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("plain", (2, 3, 5, 6, 4, 3, 2, 3), {}),
        ("strides", (2, 3, 7, 6, 4, 3, 2, 3), {"strides": [2, 3], "padding": [[1, 2], [0, 1]]}),
        (
            "dilated",
            (1, 2, 4, 5, 3, 2, 2, 2),
            {"lhs": [2, 1], "rhs": [1, 2], "padding": [[1, 1], [2, 0]]},
        ),
        ("cropped", (1, 2, 6, 6, 3, 2, 2, 2), {"padding": [[-1, -2], [0, -1]]}),
        ("groups", (2, 4, 5, 5, 6, 2, 3, 3), {"groups": 2}),
        ("depthwise", (2, 3, 5, 5, 6, 1, 3, 3), {"groups": 3}),
        ("batch_groups", (4, 3, 5, 5, 6, 3, 2, 2), {"batch_groups": 2}),
    ]
    for layout, (images, kernels, results) in layouts.items():
        numbers = _bytes(
            "Convolution",
            input_batch_dimension=images[0],
            input_feature_dimension=images[1],
            input_spatial_dimensions=images[2:],
            kernel_output_feature_dimension=kernels[0],
            kernel_input_feature_dimension=kernels[1],
            kernel_spatial_dimensions=kernels[2:],
            output_batch_dimension=results[0],
            output_feature_dimension=results[1],
            output_spatial_dimensions=results[2:],
        )
        for label, sizes, options in cases:

            def conv(x: Any, w: Any, numbers: bytes = numbers, options: Any = options) -> Any:
                arguments = [
                    options.get("strides", [1, 1]),
                    options.get("padding", [[0, 0], [0, 0]]),
                    options.get("lhs", [1, 1]),
                    options.get("rhs", [1, 1]),
                    options.get("groups", 1),
                ]
                if "batch_groups" not in options:
                    return xla.xla_conv(x, w, *arguments, numbers, "")
                return xla.xla_conv_v2(
                    x,
                    w,
                    *arguments,
                    numbers,
                    "",
                    preferred_element_type=tf.float32,
                    batch_group_count=options["batch_groups"],
                )

            x = _normal(*sizes[:4]).transpose(np.argsort(images))
            w = _normal(*sizes[4:]).transpose(np.argsort(kernels))
            yield f"conv/{layout}_{label}", conv, [x, w]


def _windows() -> Iterator[Program]:
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops as xla

    geometries = {
        "plain": ([2, 2], [1, 1], [1, 1], [1, 1], [[0, 0], [0, 0]]),
        "strided": ([3, 2], [2, 2], [1, 1], [1, 1], [[1, 1], [0, 1]]),
        "dilated": ([2, 2], [1, 2], [2, 1], [1, 3], [[0, 1], [2, 2]]),
        "none": ([9, 1], [1, 1], [1, 1], [1, 1], [[0, 0], [0, 0]]),
    }
    reducers = {
        "sum": (lambda a, b: a + b, 0.0),
        "max": (tf.maximum, -np.inf),
        "mixed": (lambda a, b: tf.maximum(a, b) + tf.minimum(a, 0.0) * 0.0, -3.0),
    }
    for label, geometry in geometries.items():
        for kind, (body, init) in reducers.items():

            def reduce(x: Any, geometry: Any = geometry, body: Any = body, init: Any = init) -> Any:
                return xla.xla_reduce_window(
                    x, tf.constant(init, tf.float32), *geometry, _pairs(body)
                )

            yield f"reduce_window/{label}_{kind}", reduce, [_normal(6, 5)]
    for label, (sizes, strides, padding) in {
        "plain": ([2, 2], [2, 2], [[0, 0], [0, 0]]),
        "overlapping": ([3, 3], [1, 2], [[1, 1], [1, 1]]),
    }.items():
        for kind, scatter in {"add": lambda a, b: a + b, "other": lambda a, b: a * 0.5 + b}.items():

            def select(
                x: Any,
                source: Any,
                geometry: Any = (sizes, strides, padding),
                scatter: Any = scatter,
            ) -> Any:
                functions = _pairs(lambda a, b: a >= b), _pairs(scatter)
                return xla.xla_select_and_scatter(
                    x, *geometry, source, tf.constant(1.5), *functions
                )

            shape = (3, 3) if label == "plain" else (6, 3)
            yield f"select_and_scatter/{label}_{kind}", select, [_normal(6, 6), _normal(*shape)]


def _slices() -> Iterator[Program]:
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops as xla

    gathers: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
        "rows": (
            (5, 3),
            [[1], [4], [9], [-3]],
            [1, 3],
            {
                "offset_dims": [1],
                "collapsed_slice_dims": [0],
                "start_index_map": [0],
                "index_vector_dim": 1,
            },
        ),
        "windows": (
            (5, 4),
            [[1, 2], [9, 9]],
            [2, 3],
            {"offset_dims": [0, 2], "start_index_map": [1, 0], "index_vector_dim": 1},
        ),
        "scalars": (
            (4, 5),
            [[[1, 2], [3, 4]], [[0, 0], [7, 7]]],
            [1, 1],
            {"collapsed_slice_dims": [0, 1], "start_index_map": [0, 1], "index_vector_dim": 2},
        ),
        "implicit": (
            (6,),
            [3, 0, 5],
            [2],
            {"offset_dims": [1], "start_index_map": [0], "index_vector_dim": 1},
        ),
        "leading": (
            (4, 5),
            [[1, 3], [2, 4]],
            [2, 1],
            {
                "offset_dims": [0],
                "collapsed_slice_dims": [1],
                "start_index_map": [0, 1],
                "index_vector_dim": 0,
            },
        ),
        "batched": (
            (2, 5, 3),
            [[[1], [2], [4]], [[0], [9], [3]]],
            [1, 1, 3],
            {
                "offset_dims": [2],
                "collapsed_slice_dims": [1],
                "start_index_map": [1],
                "index_vector_dim": 2,
                "operand_batching_dims": [0],
                "start_indices_batching_dims": [0],
            },
        ),
    }
    for label, (shape, starts, sizes, fields) in gathers.items():
        numbers = _bytes("Gather", **fields)

        def gather(x: Any, i: Any, sizes: Any = sizes, numbers: bytes = numbers) -> Any:
            return xla.xla_gather(
                x, i, tf.constant(sizes, i.dtype), numbers, indices_are_sorted=False
            )

        for dtype in (F32, np.bool_):
            yield (
                f"gather/{label}_{np.dtype(dtype).name}",
                gather,
                [
                    _normal(*shape) > 0 if dtype is np.bool_ else _normal(*shape),
                    np.array(starts, I32),
                ],
            )
    scatters: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
        "rows": (
            (5, 3),
            [[1], [4], [1], [9], [-3]],
            (5, 3),
            {
                "update_window_dims": [1],
                "inserted_window_dims": [0],
                "scatter_dims_to_operand_dims": [0],
                "index_vector_dim": 1,
            },
        ),
        "windows": (
            (5, 4),
            [[0, 1], [1, 2], [2, 3]],
            (2, 3, 2),
            {
                "update_window_dims": [0, 2],
                "scatter_dims_to_operand_dims": [1, 0],
                "index_vector_dim": 1,
            },
        ),
        "scalars": (
            (6,),
            [[1], [5], [1], [1]],
            (4,),
            {
                "inserted_window_dims": [0],
                "scatter_dims_to_operand_dims": [0],
                "index_vector_dim": 1,
            },
        ),
        "implicit": (
            (6,),
            [3, 0, 3],
            (3, 2),
            {"update_window_dims": [1], "scatter_dims_to_operand_dims": [0], "index_vector_dim": 1},
        ),
        "batched": (
            (2, 5),
            [[[1], [2]], [[1], [1]]],
            (2, 2),
            {
                "inserted_window_dims": [1],
                "scatter_dims_to_operand_dims": [1],
                "index_vector_dim": 2,
                "input_batching_dims": [0],
                "scatter_indices_batching_dims": [0],
            },
        ),
    }
    updates = {
        "add": lambda a, b: a + b,
        "set": lambda a, b: b,
        "max": tf.maximum,
        "other": lambda a, b: a * 0.5 - b,
    }
    for label, (shape, starts, updated, fields) in scatters.items():
        numbers = _bytes("Scatter", **fields)
        for kind, body in updates.items():

            def scatter(x: Any, i: Any, u: Any, numbers: bytes = numbers, body: Any = body) -> Any:
                return xla.xla_scatter(x, i, u, _pairs(body), numbers, indices_are_sorted=False)

            yield (
                f"scatter/{label}_{kind}",
                scatter,
                [_normal(*shape), np.array(starts, I64), _normal(*updated, seed=1)],
            )
    pads = {
        "edges": ([1, 0], [2, 1], [0, 0]),
        "interior": ([0, 1], [1, 0], [2, 1]),
        "negative": ([-1, 0], [0, -2], [1, 1]),
    }
    for label, config in pads.items():
        yield (
            f"pad/{label}",
            lambda x, config=config: xla.xla_pad(x, tf.constant(7.0), *config),
            [_normal(3, 4)],
        )
    yield (
        "dynamic_slice",
        lambda x, i: xla.xla_dynamic_slice(x, i, [2, 2]),
        [_normal(4, 5), np.array([3, -1], I32)],
    )
    yield (
        "dynamic_update_slice",
        xla.xla_dynamic_update_slice,
        [_normal(4, 5), _normal(2, 2), np.array([3, 1], I32)],
    )


def _reductions() -> Iterator[Program]:
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops as xla

    def softplus(a: Any, b: Any) -> Any:
        return tf.maximum(a, b) + tf.math.log1p(tf.exp(-tf.abs(a - b)))

    for kind, (body, init) in {
        "sum": (lambda a, b: a + b, 0.5),
        "product": (lambda a, b: a * b, 2.0),
        "max": (tf.maximum, -np.inf),
        "logsumexp": (softplus, -30.0),
    }.items():
        for axes in ([0], [2, 0], [0, 1, 2], []):

            def reduce(x: Any, body: Any = body, init: Any = init, axes: Any = axes) -> Any:
                return xla.xla_reduce(x, tf.constant(init, tf.float32), axes, _pairs(body))

            yield f"reduce/{kind}_{''.join(map(str, axes))}", reduce, [_normal(3, 4, 5)]
    yield (
        "reduce/any",
        lambda x: xla.xla_reduce(x, tf.constant(False), [1], _pairs(tf.logical_or, tf.bool)),
        [_normal(3, 4) > 1],
    )
    yield (
        "reduce/empty",
        lambda x: xla.xla_reduce(x, tf.constant(3.0), [1], _pairs(lambda a, b: a + b)),
        [np.zeros((2, 0), F32)],
    )

    def largest(a: Any, i: Any, b: Any, j: Any) -> Any:
        first = (a > b) | ((a == b) & (i < j))
        return tf.where(first, a, b), tf.where(first, i, j)

    def argmax(x: Any, i: Any) -> Any:
        function = _function(largest, F32, I32, F32, I32)
        return xla.xla_variadic_reduce_v2(
            [x, i], [tf.constant(-np.inf, tf.float32), 0], [1], function
        )

    places = np.broadcast_to(np.arange(7, dtype=I32), (4, 7)).copy()
    yield "variadic_reduce_v2/argmax", argmax, [np.round(_normal(4, 7)), places]

    def two(x: Any, y: Any) -> Any:
        body = _function(lambda a, b, c, d: (a + c, b * d), F32, F32, F32, F32)
        return xla.xla_variadic_reduce([x, y], [tf.constant(0.0), tf.constant(1.0)], [0], body)

    yield "variadic_reduce/two", two, [_normal(5, 2), _normal(5, 2, seed=1)]


def _sorts() -> Iterator[Program]:
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops as xla

    numbers = np.round(_normal(3, 11) * 2)
    yield "sort/float", xla.xla_sort, [numbers]
    yield "sort/int", xla.xla_sort, [_integers(2, 3, 9)]
    yield "key_value_sort", xla.xla_key_value_sort, [_normal(3, 11), _integers(3, 11)]

    def sort(body: Callable[..., Any], axis: int, *types: Any) -> Callable[..., Any]:
        doubled = [dtype for dtype in types for _ in range(2)]
        return lambda *xs: xla.xla_variadic_sort(
            xs, axis, _function(body, *doubled), is_stable=True
        )

    yield "variadic_sort/descending", sort(lambda a, b: a > b, 1, F32), [numbers]
    stable = sort(lambda a, b, c, d: a < b, 0, F32, I32)
    yield "variadic_sort/stable", stable, [np.round(_normal(17, 3)), _integers(17, 3)]
    pairs = sort(lambda a, b, c, d: (a < b) | ((a == b) & (c > d)), 1, F32, I32)
    yield "variadic_sort/pairs", pairs, [numbers, _integers(3, 11)]


def _loops() -> Iterator[Program]:
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops as xla

    def loop(i: Any, x: Any) -> Any:
        cond = _function(lambda i, x: i < 5, I32, F32)
        return xla.xla_while([i, x], cond, _function(lambda i, x: (i + 1, x * 2 - 1), I32, F32))

    for start in (0, 3, 9):
        yield f"while/{start}", loop, [I32(start), F32(1.5)]


def _others() -> Iterator[Program]:
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops as xla

    matrix = _normal(2, 4, 4)
    for lower in (True, False):

        def eigen(x: Any, lower: bool = lower) -> Any:
            w, v = xla.xla_self_adjoint_eig(x, lower, 100, 1e-6)
            return w, abs(v)

        yield f"self_adjoint_eig/{'lower' if lower else 'upper'}", eigen, [matrix]
    for shape in ((4, 3), (2, 3, 5)):

        def svd(x: Any) -> Any:
            s, u, v = xla.xla_svd(x, 100, 1e-6, "")
            return s, abs(u), abs(v[..., :3])

        yield f"svd/{len(shape)}", svd, [_normal(*shape)]
    yield (
        "reduce_precision",
        lambda x: xla.xla_reduce_precision(x, 5, 4),
        [
            np.concatenate(
                [_normal(40), 1e9 * _normal(3), 1e-6 * _normal(3), [np.nan, np.inf]]
            ).astype(F32)
        ],
    )
    yield (
        "optimization_barrier",
        lambda x, y: xla.xla_optimization_barrier([x, y]),
        [_normal(2), _integers(3)],
    )
    yield (
        "broadcast_helper",
        lambda x, y: xla.xla_broadcast_helper(x, y, [1]),
        [_normal(2, 3), _normal(3)],
    )
    yield "sharding", xla.xla_sharding, [_normal(3)]
    key = np.array([0x123456789ABCDEF, 0xFEDCBA9876543210], np.uint64)
    for algorithm, name in ((1, "philox"), (2, "threefry"), (3, "auto")):
        state = key if algorithm == 2 else np.append(key, np.uint64(2**64 - 2))
        for dtype in (np.uint64, np.uint32, np.uint8):
            for shape in ((5,), (2, 3, 3), (4,), ()):

                def bits(state: Any, a: int = algorithm, shape: Any = shape, d: Any = dtype) -> Any:
                    return xla.xla_rng_bit_generator(a, state, shape, dtype=d)

                kind = f"{np.dtype(dtype).name}_{'x'.join(map(str, shape))}"
                yield f"rng_bit_generator/{name}_{kind}", bits, [state]


def record() -> None:
    """Run all programs in TensorFlow, and write the archive."""
    entries: dict[str, bytes] = {}
    cases = [_recorded(*program, entries) for program in programs()]
    lines = [json.dumps(case, sort_keys=True) for case in cases]
    entries["cases.jsonl"] = "\n".join(lines).encode() + b"\n"
    with zipfile.ZipFile(XLA_OPERATIONS, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, data in sorted(entries.items()):
            archive.writestr(zipfile.ZipInfo(entry), data, zipfile.ZIP_DEFLATED)


def _recorded(
    name: str, body: Callable[..., Any], inputs: list[Any], entries: dict[str, bytes]
) -> dict[str, Any]:
    import tensorflow as tf

    arrays = [np.asarray(x) for x in inputs]
    specs = [tf.TensorSpec(x.shape, x.dtype, name=f"x{i}") for i, x in enumerate(arrays)]
    compiled = tf.function(body, input_signature=specs, autograph=False, jit_compile=True)
    results = [np.asarray(x) for x in tf.nest.flatten(compiled(*map(tf.constant, arrays)))]
    concrete = compiled.get_concrete_function()
    definition = concrete.graph.as_graph_def()
    graph = _store(entries, "graphs", "pb", definition.SerializeToString(deterministic=True))
    outputs = [x.name for x in concrete.outputs]
    run = {
        "graph": graph,
        "fetches": outputs,
        "feeds": {
            x.name: _store_array(entries, array)
            for x, array in zip(concrete.inputs, arrays, strict=True)
        },
        "expected": {
            x: _store_array(entries, result) for x, result in zip(outputs, results, strict=True)
        },
    }
    ops = {node.op for node in definition.node}
    ops |= {node.op for function in definition.library.function for node in function.node_def}
    return {"id": f"xla/{name}", "kind": "session", "tags": [], "ops": sorted(ops), "runs": [run]}


def _store_array(entries: dict[str, bytes], array: Any) -> str:
    buffer = io.BytesIO()
    np.save(buffer, array if array.dtype.isbuiltin == 1 else array.astype(F32), allow_pickle=False)
    return _store(entries, "arrays", "npy", buffer.getvalue())


def _store(entries: dict[str, bytes], folder: str, suffix: str, data: bytes) -> str:
    name = hashlib.sha256(data).hexdigest()[:16]
    entries[f"{folder}/{name}.{suffix}"] = data
    return name


if __name__ == "__main__":
    record()
