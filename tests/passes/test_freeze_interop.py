"""Frozen graphs agree with TensorFlow on the models that TensorFlow saves, and convert."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.ir.file_io import read_file
from cfgraph.ir.serde.saved_model import SavedSignature, read_contents
from cfgraph.ops.opdef.op import function_calls, role_of

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated"),
]
tf: Any = pytest.importorskip("tensorflow", reason="the extra `interop` is not installed")

X = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)


def signature_of(path: Path) -> SavedSignature:
    contents = read_contents(read_file(path))
    assert contents is not None
    return contents.signatures["serving_default"]


def frozen(path: Path, signature: SavedSignature) -> cfgraph.Graph:
    graph = cfgraph.load(path)
    outputs = [item.tensor for item in signature.outputs]
    report = cfgraph.freeze(graph, cfgraph.restore(path, allow_io=True), outputs=outputs)
    assert [item.name for item in report.variables if not item.frozen] == []
    return graph


def run_by_tensorflow(graph: cfgraph.Graph, feeds: dict[str, Any], fetches: list[str]) -> list[Any]:
    proto = tf.compat.v1.GraphDef.FromString(cfgraph.dumps(graph))
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(proto, name="")
        with tf.compat.v1.Session(graph=imported) as session:
            found: list[Any] = session.run(fetches, feeds)
    return found


def run_by_lite(
    graph: cfgraph.Graph, folder: Path, feeds: dict[str, Any], fetches: list[str]
) -> list[Any]:
    """The outputs of the graph that TensorFlow's Lite converter makes of a frozen file."""
    cfgraph.save(graph, folder / "frozen.pb")
    shapes = {name.partition(":")[0]: list(np.shape(value)) for name, value in feeds.items()}
    converter = tf.compat.v1.lite.TFLiteConverter.from_frozen_graph(
        str(folder / "frozen.pb"), [*shapes], [name.removesuffix(":0") for name in fetches], shapes
    )
    interpreter = tf.lite.Interpreter(model_content=converter.convert())
    interpreter.allocate_tensors()
    values = {name.partition(":")[0]: value for name, value in feeds.items()}
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], values[detail["name"].partition(":")[0]])
    interpreter.invoke()
    return [interpreter.get_tensor(item["index"]) for item in interpreter.get_output_details()]


def check_model(path: Path, feeds: dict[str, Any], *, converts: bool = True) -> cfgraph.Graph:
    """Compare a frozen SavedModel with the original, also in TensorFlow and TensorFlow Lite."""
    signature = signature_of(path)
    graph = frozen(path, signature)
    original = tf.saved_model.load(str(path)).signatures["serving_default"]
    results = original(**{name: tf.constant(value) for name, value in feeds.items()})
    expected = [results[item.name].numpy() for item in signature.outputs]
    fetches = [item.tensor for item in signature.outputs]
    fed = {item.tensor: feeds[item.name] for item in signature.inputs}
    sources = [cfgraph.Session(graph).run(fetches, fed), run_by_tensorflow(graph, fed, fetches)]
    if converts:
        sources.append(run_by_lite(graph, path, fed, fetches))
    for found in sources:
        for have, want in zip(found, expected, strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)
    return graph


class Model(tf.Module):  # type: ignore[misc]
    """Variables in a conditional, in a loop, and in a nested call."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable([[2.0, 1.0], [0.5, -1.0]], name="w")
        self.b = tf.Variable([1.0, -1.0], name="b")
        self.steps = tf.Variable(3, name="steps")

    @tf.function
    def layer(self, x: Any) -> Any:
        return tf.matmul(x, self.w) + self.b

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def serve(self, x: Any) -> Any:
        for _ in tf.range(self.steps):
            x = tf.tanh(self.layer(x))
        return {"y": x * self.b if tf.reduce_sum(x) > 0 else x - self.b}


def test_variables_in_functions_are_constants(tmp_path: Path) -> None:
    model = Model()
    tf.saved_model.save(model, str(tmp_path), {"serving_default": model.serve})
    graph = check_model(tmp_path, {"x": X})
    assert "VarHandleOp" not in graph.ops
    kinds = {function_calls(node.op).kind for node in graph}
    assert "call" not in kinds
    assert kinds & {"if", "while"}


def test_a_keras_model_is_frozen(tmp_path: Path) -> None:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input([2], name="x"),
            layers.Dense(3, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(1),
        ]
    )
    model.export(str(tmp_path), verbose=False)
    name = signature_of(tmp_path).inputs[0].name
    graph = check_model(tmp_path, {name: X})
    assert not any(role_of(node) or function_calls(node.op).kind for node in graph)


def center(x: Any, training: Any) -> Any:
    """Subtract the mean of a batch, which both branches do; training assigns the average."""
    v1 = tf.compat.v1
    mean = v1.get_variable("mean", [2], use_resource=False)

    def train() -> Any:
        batch = tf.reduce_mean(x, axis=0)
        with tf.control_dependencies([v1.assign(mean, 0.9 * mean + 0.1 * batch)]):
            return x - batch

    return tf.cond(training, train, lambda: x - mean)


def normalize(x: Any, training: Any) -> Any:
    """Batch normalization, of which only the branch for training reads the batch."""
    v1 = tf.compat.v1
    mean = v1.get_variable("mean", [2], use_resource=False)
    variance = v1.get_variable("variance", [2], initializer=tf.ones_initializer())

    def train() -> Any:
        moments = tf.nn.moments(x, axes=[0])
        variables = zip((mean, variance), moments, strict=True)
        updates = [v1.assign(old, 0.9 * old + 0.1 * new) for old, new in variables]
        with tf.control_dependencies(updates):
            return [tf.identity(item) for item in moments]

    average, spread = tf.cond(training, train, lambda: [tf.identity(mean), tf.identity(variance)])
    return tf.nn.batch_normalization(x, average, spread, None, None, 1e-3)


@pytest.mark.parametrize("layer", [center, normalize])
def test_an_is_training_conditional_of_tensorflow_1_disappears(tmp_path: Path, layer: Any) -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default() as built:
        v1.disable_control_flow_v2()
        x = v1.placeholder(tf.float32, [None, 2], name="x")
        training = v1.placeholder(tf.bool, [], name="is_training")
        w = v1.get_variable("w", [2, 2], use_resource=False)
        y = tf.identity(layer(tf.matmul(x, w), training), name="y")
        saver = v1.train.Saver()
        with v1.Session(graph=built) as session:
            session.run(v1.global_variables_initializer())
            expected = session.run(y, {x: X, training: False})
            prefix = saver.save(session, str(tmp_path / "model.ckpt"))
        (tmp_path / "graph.pb").write_bytes(built.as_graph_def().SerializeToString())
    v1.enable_control_flow_v2()
    graph = cfgraph.load(tmp_path / "graph.pb")
    values = cfgraph.restore(prefix, graph)
    report = cfgraph.freeze(graph, values, outputs=["y"], values={"is_training": False})
    assert all(item.frozen for item in report.variables)
    assert {item.name for item in report.variables} >= {"w", "mean"}
    assert not any(role_of(node) or node.controls for node in graph)
    rest = {"Placeholder", "Const", "MatMul", "Sub", "Identity", "Mul", "AddV2"}
    assert {node.op for node in graph} <= rest
    for found in (
        cfgraph.Session(graph).run(["y"], {"x": X}),
        run_by_tensorflow(graph, {"x:0": X}, ["y:0"]),
        run_by_lite(graph, tmp_path, {"x:0": X}, ["y:0"]),
    ):
        np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-6)


def test_an_unrolled_loop_converts_without_while(tmp_path: Path) -> None:
    with tf.Graph().as_default() as built:
        x = tf.compat.v1.placeholder(tf.float32, [2, 2], name="x")
        _, y = tf.while_loop(
            lambda i, _: i < 4, lambda i, y: (i + 1, y * tf.cast(i + 1, tf.float32)), [0, x]
        )
        tf.identity(y, name="y")
    graph = cfgraph.loads(built.as_graph_def().SerializeToString())
    cfgraph.optimize(graph, fetches=["y"], unroll=4)
    assert not any(role_of(node) or function_calls(node.op).kind for node in graph)
    (found,) = run_by_lite(graph, tmp_path, {"x:0": X}, ["y:0"])
    np.testing.assert_allclose(found, 24 * X)
