"""Functions of jax that jax2tf writes as StableHLO, and the recorder of TensorFlow's results.

`python -m tests.integrations.stablehlo.programs` writes `fixtures/conformance/stablehlo.zip`: a
SavedModel of each function, and `values.json`, what TensorFlow computes. It needs TensorFlow and
jax; the tests need jax alone.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

NAMES = [
    "scan",
    "while_loop",
    "fori_loop",
    "cond",
    "switch",
    "mlp",
    "batch",
    "nested",
    "nested_loops",
    "platforms",
    "sorting",
    "integers",
]
ARCHIVE = Path(__file__).parents[3] / "fixtures" / "conformance" / "stablehlo.zip"


@dataclass(frozen=True)
class Program:
    """A function of jax, its inputs, and how it is exported.

    `shapes` are polymorphic shapes. `inputs` has a list of arrays per run.
    """

    function: Callable[..., Any]
    inputs: list[list[Any]]
    shapes: list[str | None] | None = None
    options: dict[str, Any] = field(default_factory=dict)


def programs() -> dict[str, Program]:
    """The programs by name."""
    import jax
    import jax.numpy as jnp

    lax = jax.lax
    vector = np.array([1.0, -2.0, 3.5], np.float32)
    other = np.array([0.25, 4.0, -1.0], np.float32)
    matrix = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)

    def scan(x: Any) -> Any:
        return lax.scan(lambda total, row: (total + row, total * row), jnp.zeros(3), x)

    def while_loop(x: Any, n: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 1.5), (0, x))

    def fori_loop(x: Any) -> Any:
        return lax.fori_loop(0, 5, lambda i, y: y + i * jnp.sin(y), x)

    def cond(x: Any) -> Any:
        return lax.cond(x.sum() > 0, lambda y: y * 2, lambda y: -y, x)

    def switch(i: Any, x: Any) -> Any:
        return lax.switch(i, [lambda y: y + 1, lambda y: y * y, jnp.cos], x)

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        hidden = jnp.tanh(x @ parameters[0] + parameters[1])
        return jnp.mean((hidden @ parameters[2] - y) ** 2)

    def mlp(w: Any, b: Any, v: Any, x: Any, y: Any) -> Any:
        return jax.value_and_grad(loss)((w, b, v), x, y)

    def batch(x: Any) -> Any:
        return jax.nn.softmax(x, axis=-1), x.sum(axis=0) / x.shape[0]

    def nested(x: Any) -> Any:
        square = jax.jit(lambda y: y * y)
        return jax.jit(lambda y: square(square(y)) + square(y))(x)

    def nested_loops(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            inner = lambda s: s + 1 + 0.1 * lax.cond(s.sum() > 9, jnp.sin, jnp.tanh, s)  # noqa: E731
            return lax.while_loop(lambda s: (s < 4).any(), inner, y - i)

        return lax.fori_loop(0, 3, body, x)

    def platforms(x: Any) -> Any:
        return lax.platform_dependent(x, cpu=lambda y: y + 1, cuda=lambda y: y - 1)

    def sorting(x: Any) -> Any:
        return jnp.sort(x, axis=0), jnp.argmax(x, axis=1), jnp.cumsum(x, axis=1)

    def integers(x: Any, y: Any) -> Any:
        return x // y, (x > y) | (y == 1), x.astype(jnp.bfloat16)

    weights = [matrix.T[:, :2] * 1.5, np.array([0.1, -0.2], np.float32), np.ones(2, np.float32)]
    return {
        "scan": Program(scan, [[matrix], [matrix * 2]]),
        "while_loop": Program(while_loop, [[vector, np.int32(n)] for n in (0, 3)]),
        "fori_loop": Program(fori_loop, [[vector]]),
        "cond": Program(cond, [[vector], [-vector]]),
        "switch": Program(switch, [[np.int32(i), vector] for i in (0, 1, 2, 7)]),
        "mlp": Program(mlp, [[*weights, matrix, matrix.sum(axis=1)]]),
        "batch": Program(batch, [[matrix], [matrix[:1]]], ["b, 3"]),
        "nested": Program(nested, [[vector], [other]]),
        "nested_loops": Program(nested_loops, [[vector], [other]]),
        "platforms": Program(
            platforms, [[vector]], None, {"native_serialization_platforms": ("cuda", "cpu")}
        ),
        "sorting": Program(sorting, [[np.sin(matrix * 9)]]),
        "integers": Program(
            integers, [[np.array([7, -7, 9], np.int32), np.array([2, 2, 1], np.int32)]]
        ),
    }


def record() -> None:
    """Write the SavedModels and TensorFlow's values to one archive."""
    import tensorflow as tf

    values: dict[str, Any] = {}
    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, program in programs().items():
            with tempfile.TemporaryDirectory() as folder:
                _save(program, folder)
                strip_locations(Path(folder, "saved_model.pb"))
                call = tf.saved_model.load(folder).signatures["serving_default"]
                values[name] = [_run(call, inputs) for inputs in program.inputs]
                for file in sorted(Path(folder).rglob("*")):
                    if file.is_file() and file.name != "fingerprint.pb":
                        archive.write(file, f"{name}/{file.relative_to(folder)}")
        archive.writestr("values.json", json.dumps(values))


def _save(program: Program, folder: str) -> None:
    """Write the SavedModel of a program, with the inputs x0, … and the outputs out0, …"""
    import tensorflow as tf
    from jax.experimental import jax2tf

    converted = jax2tf.convert(
        program.function,
        polymorphic_shapes=program.shapes,
        with_gradient=False,
        **program.options,
    )
    specs = []
    for index, array in enumerate(map(np.asarray, program.inputs[0])):
        shape = [None, *array.shape[1:]] if program.shapes else array.shape
        specs.append(tf.TensorSpec(shape, array.dtype, name=f"x{index}"))

    def call(*inputs: Any) -> dict[str, Any]:
        outputs = tf.nest.flatten(converted(*inputs))
        return {f"out{index}": value for index, value in enumerate(outputs)}

    module = tf.Module()
    module.call = tf.function(call, input_signature=specs, autograph=False)
    options = tf.saved_model.SaveOptions(save_debug_info=False)
    tf.saved_model.save(module, folder, signatures=module.call, options=options)


def strip_locations(path: Path) -> None:
    """Remove the places in source files from the modules of a SavedModel, paths of a machine."""
    from jax.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo
    from jaxlib.mlir.passmanager import PassManager

    from cfgraph.proto import saved_model_pb2

    saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for meta_graph in saved_model.meta_graphs:
        for function in meta_graph.graph_def.library.function:
            for node in function.node_def:
                if node.op == "XlaCallModule":
                    data = node.attr["module"].s
                    version = data.split(b"StableHLO_v")[1].split(b"\0")[0].decode()
                    with mlir.make_ir_context() as context, ir.Location.unknown():
                        module = stablehlo.deserialize_portable_artifact(context, data)
                        PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
                        stripped = stablehlo.serialize_portable_artifact(module, version)
                    node.attr["module"].s = stripped
    path.write_bytes(saved_model.SerializeToString(deterministic=True))


def _run(call: Callable[..., Any], inputs: list[Any]) -> dict[str, Any]:
    import tensorflow as tf

    feeds = {f"x{index}": np.asarray(value) for index, value in enumerate(inputs)}
    outputs = call(**{name: tf.constant(value) for name, value in feeds.items()})
    return {
        "feeds": {name: _document(value) for name, value in feeds.items()},
        "outputs": {name: _document(value.numpy()) for name, value in outputs.items()},
    }


def _document(array: Any) -> dict[str, Any]:
    is_number = array.dtype.kind in "fiub"
    values = array if is_number else array.astype(np.float32)
    return {"dtype": array.dtype.name, "values": values.tolist()}


def recorded(folder: Path) -> dict[str, list[dict[str, dict[str, Any]]]]:
    """Unpack the SavedModels to a folder; the feeds and outputs of the runs of each."""
    import ml_dtypes

    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)
    document = json.loads((folder / "values.json").read_text())

    def array(item: dict[str, Any]) -> Any:
        kind = item["dtype"]
        return np.array(item["values"], getattr(ml_dtypes, kind, None) or np.dtype(kind))

    return {
        name: [
            {part: {key: array(item) for key, item in run[part].items()} for part in run}
            for run in runs
        ]
        for name, runs in document.items()
    }


if __name__ == "__main__":
    record()
