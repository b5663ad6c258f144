"""TensorFlow prints the texts of docs/messages/ for the graphs of these pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cfgraph

pytestmark = pytest.mark.interop

# page, graph, what is fetched, feeds
CASES = (
    ("retval-does-not-have-value", "retval.graph", "loss:0", {"x:0": 3, "is_training:0": False}),
    ("retval-does-not-have-value", "retval_loop.graph", "clipped:0", {"x:0": 1}),
    ("graph-could-not-be-sorted", "cycle.graph", "loss:0", {"x:0": 3}),
    ("inputs-from-different-frames", "frames.graph", "last:0", {"n:0": 3}),
    ("invalid-loop-structure", "parents.graph", "exit:0", {"x:0": 3}),
    ("attempting-to-use-uninitialized-value", "uninitialized.graph", "y:0", {"x:0": 3}),
    ("incompatible-with-expected-float-ref", "ref.graph", "y:0", {"batch:0": 3}),
    ("op-type-not-registered", "custom.pbtxt", "y:0", {"x:0": 3}),
    ("you-must-feed-a-value-for-placeholder", "placeholder.graph", "y:0", {"images:0": [[1] * 4]}),
    ("tensor-had-nan-values", "nan.graph", "loss:0", {"x:0": 3}),
    ("marked-as-not-fetchable", "nan.graph", "log:0", {"x:0": 3}),
    ("marked-as-not-fetchable", "retval_loop.graph", "clipped:0", {"x:0": 64}),
    ("table-not-initialized", "table.graph", "id:0", {"word:0": ["cat"]}),
    ("tried-to-read-from-index", "tensor_array.graph", "exit:0", {"n:0": 4}),
    ("cannot-assign-a-device", "gpu.graph", "y:0", {"x:0": 3}),
)
# what TensorFlow 2.21 prints, where its words are not the title of the page
TEXTS = {
    "graph-could-not-be-sorted": "3 nodes in a cycle",
    "inputs-from-different-frames": "has inputs from different frames",
    "incompatible-with-expected-float-ref": "passed float from mean:0 incompatible with expected",
    "op-type-not-registered": "Op type not registered 'swish_f32' in binary",
    "marked-as-not-fetchable": "Retval[0] has already been set",
    "tried-to-read-from-index": "Tried to read from index 3 but array size is: 3",
}
# page, graph, y, x
GRADIENTS = (
    ("outer-context", "imported.graph", "y:0", "x:0"),
    ("no-gradient-defined-for-operation", "nogradient.graph", "y:0", "x:0"),
)


def _import(tf: Any, file: Path) -> None:
    graph_def = tf.compat.v1.GraphDef.FromString(cfgraph.dumps(cfgraph.load(file), "pb"))
    tf.compat.v1.import_graph_def(graph_def, name="")


def _run(tf: Any, file: Path, fetch: str, feeds: dict[str, Any]) -> Any:
    _import(tf, file)
    with tf.compat.v1.Session() as session:
        return session.run(fetch, feeds)


def _title(root: Path, page: str) -> str:
    text = (root / "docs" / "messages" / f"{page}.md").read_text(encoding="utf-8")
    return text.partition("\n")[0].removeprefix("# ")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_tensorflow_prints_the_text_of_a_page(
    case: tuple[str, str, str, dict[str, Any]], root: Path, fixtures: Path
) -> None:
    tf = pytest.importorskip("tensorflow", reason="the extra `interop` is not installed")
    page, name, fetch, feeds = case
    with tf.Graph().as_default(), pytest.raises((ValueError, tf.errors.OpError)) as caught:
        _run(tf, fixtures / "messages" / name, fetch, feeds)
    assert TEXTS.get(page, _title(root, page)) in str(caught.value)


def test_tensorflow_returns_what_is_live_in_one_iteration_alone(fixtures: Path) -> None:
    tf = pytest.importorskip("tensorflow", reason="the extra `interop` is not installed")
    with tf.Graph().as_default():
        value = _run(tf, fixtures / "messages" / "retval_loop.graph", "clipped:0", {"x:0": 6})
    assert value == pytest.approx(12**0.5)


@pytest.mark.parametrize("case", GRADIENTS, ids=lambda case: case[0])
def test_tensorflow_lacks_the_gradient_of_a_page(
    case: tuple[str, str, str, str], root: Path, fixtures: Path
) -> None:
    tf = pytest.importorskip("tensorflow", reason="the extra `interop` is not installed")
    page, name, y, x = case
    with tf.Graph().as_default() as graph:
        _import(tf, fixtures / "messages" / name)
        ends = (graph.get_tensor_by_name(y), graph.get_tensor_by_name(x))
        with pytest.raises((LookupError, AttributeError)) as caught:
            tf.compat.v1.gradients(*ends)
    assert _title(root, page) in str(caught.value)


def test_the_converter_of_tensorflow_lite_rejects_two_predicates(
    root: Path, fixtures: Path, tmp_path: Path
) -> None:
    tf = pytest.importorskip("tensorflow", reason="the extra `interop` is not installed")
    file = tmp_path / "graph.pb"
    cfgraph.save(cfgraph.load(fixtures / "messages" / "two_predicates.graph"), file)
    names, shapes = ["x", "p", "q"], {"x": [], "p": [], "q": []}
    converter = tf.compat.v1.lite.TFLiteConverter.from_frozen_graph
    with pytest.raises(Exception, match="predicate") as caught:
        converter(str(file), names, ["merge"], shapes).convert()
    for page in (
        "merge-differs-on-more-than-one-predicate",
        "failed-to-functionalize-control-flow",
    ):
        assert _title(root, page) in str(caught.value)
