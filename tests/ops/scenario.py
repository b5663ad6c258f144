"""Small graphs of stateful ops, run in several runs by cfgraph's kernels and by TensorFlow.

A scenario is a function that adds nodes to a Sketch and returns the runs: lists of what each run
fetches (outputs) or does (nodes). Where TensorFlow fails in a run, we must fail too.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Graph, Node, Output, Versions
from cfgraph.ir.serde.graph_def import graph_to_bytes
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.opdef.op import lookup
from cfgraph.ops.opdef.shape_functions import InferenceContext
from cfgraph.runtime.engine.references import dereference
from tests.ops import harness

FOLDER = Path(__file__).parent / "scenarios"
Run = Sequence[Output | Node]
Runs = Sequence[Run]
Scenario = Callable[["Sketch"], Runs]


class Sketch:
    """Adds nodes to a graph, arrays as constants."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.graph.versions = Versions(producer=21)

    def __call__(self, op: str, *inputs: Any, **attrs: Any) -> Output:
        """Add a node; returns its first output."""
        encoded = {key: _attr(value) for key, value in attrs.items() if key != "controls"}
        ports = [i if isinstance(i, Output | Node) else self.const(i) for i in inputs]
        controls = [getattr(c, "node", c) for c in attrs.get("controls", ())]
        node = self.graph.add(op, *ports, name=op.strip("_"), controls=controls, attrs=encoded)
        return Output(node, 0)

    def const(self, value: Any) -> Output:
        """Add a constant; Python numbers are int32 and float32, text is a string."""
        tensor = TensorValue(array_of(value))
        return Output(self.graph.add("Const", value=tensor, dtype=tensor.dtype), 0)

    def hidden(self, value: Any) -> Output:
        """A tensor, or a constant, of which no shape function sees anything."""
        tensor = value if isinstance(value, Output) else self.const(value)
        return self("PlaceholderWithDefault", tensor, shape=UNKNOWN_SHAPE)


def versions(scene: Callable[[Sketch, str], Runs], *suffixes: str) -> list[Scenario]:
    """The scenario in some versions of its ops."""

    def of(version: str) -> Scenario:
        def one(g: Sketch) -> Runs:
            return scene(g, version)

        one.__name__ = f"{scene.__name__}_{version or 'V1'}"
        return one

    return [of(version) for version in suffixes]


def array_of(value: Any) -> Any:
    """An array of what a scenario writes; Python numbers and empty lists are of 32 bits."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    array = np.asarray(value)
    if not array.size:
        return array.astype(np.int32)
    if array.dtype.kind in "SU":
        texts = np.empty(array.shape, object)
        for place in np.ndindex(array.shape):
            text = array[place]
            texts[place] = text if isinstance(text, bytes) else str(text).encode()
        return texts
    short = {np.dtype(np.int64): np.int32, np.dtype(np.float64): np.float32}
    return array.astype(short.get(array.dtype, array.dtype))


def _attr(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


@cache
def scenarios() -> dict[str, Scenario]:
    """All scenarios, by file and name."""
    found: dict[str, Scenario] = {}
    for path in sorted(FOLDER.glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"cfgraph_scenes_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found |= {f"{path.stem}-{scene.__name__}": scene for scene in module.SCENES}
    return found


def ops_in(scene: Scenario) -> set[str]:
    """The ops that a scenario uses."""
    sketch = Sketch()
    scene(sketch)
    return {node.op for node in sketch.graph}


@cache
def covered() -> dict[str, str]:
    """The ops that some scenario uses."""
    return {op: "in a scenario" for scene in scenarios().values() for op in ops_in(scene)}


# -- ours ------------------------------------------------------------------------------------------


class Kernels:
    """Runs the nodes of an acyclic graph in their order, by their kernels alone."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.step = harness.LocalStep()
        self.shapes: dict[Output, Shape] = {}
        self.kernels: dict[Node, Any] = {}

    def run(self, wanted: Run) -> list[Any]:
        """The values of the fetched outputs."""
        self.step.temporaries.clear()
        needed: set[Node] = set()
        todo = [getattr(item, "node", item) for item in wanted]
        while todo:
            node = todo.pop()
            if node not in needed:
                needed.add(node)
                todo += [*(i.node for i in node.inputs), *node.controls]
        values: dict[Output, Any] = {}
        for node in self.graph:
            if node in needed:
                self._fire(node, values)
        fetched = [item for item in wanted if isinstance(item, Output)]
        return [_read(item, values[item]) for item in fetched]

    def _fire(self, node: Node, values: dict[Output, Any]) -> None:
        op = lookup(node.op)
        wants = node.input_types
        assert op is not None
        assert wants is not None
        inputs = [
            values[item] if want.is_ref else _read(item, values[item])
            for item, want in zip(node.inputs, wants, strict=True)
        ]
        if node not in self.kernels:
            self.kernels[node] = op.prepare(node, np) if op.effects.stateful else op.bind(node, np)
        kernel = self.kernels[node]
        result = kernel(self.step, *inputs) if op.effects.stateful else kernel(*inputs)
        outputs = () if result is None else result if isinstance(result, tuple) else (result,)
        self._check(node, op, outputs)
        values.update({Output(node, port): value for port, value in enumerate(outputs)})

    def _check(self, node: Node, op: Any, outputs: Sequence[Any]) -> None:
        """The values have the type that the signature says and the shape that is inferred."""
        known = tuple(self.shapes[item] for item in node.inputs)
        for slot, item in enumerate(node.inputs):
            if item.node.op != "Const":
                known = (*known[:slot], self.shapes[item], *known[slot + 1 :])
        shapes = op.shape(InferenceContext(node, known, lambda slot: _constant(node, slot)))
        assert len(shapes) == len(outputs), f"{node.op}: {len(shapes)} shapes"
        for port, (value, shape) in enumerate(zip(outputs, shapes, strict=True)):
            dtype = node.output(port).dtype
            assert dtype is not None
            self.shapes[Output(node, port)] = shape
            if isinstance(value, np.ndarray | np.generic):
                assert value.dtype == dtype.numpy, f"{node.op}: {value.dtype}, not {dtype}"
                assert shape.accepts(value.shape), f"{node.op}: {value.shape}, not {shape}"


def _constant(node: Node, slot: int) -> Any:
    source = node.inputs[slot].node
    return source.attr("value").array if source.op == "Const" else None


def _read(item: Output, value: Any) -> Any:
    dtype = item.dtype
    return dereference(value) if dtype is not None and dtype.is_ref else value


# -- TensorFlow's ----------------------------------------------------------------------------------


def run_tensorflow(graph: Graph, runs: Sequence[Run]) -> list[list[Any] | Exception]:
    """The fetched values of every run, or its error. An import error counts for the first run."""
    tf = harness.tensorflow()
    definition = tf.compat.v1.GraphDef()
    definition.ParseFromString(graph_to_bytes(graph))
    theirs = tf.Graph()
    with theirs.as_default():
        tf.import_graph_def(definition, name="")
    options = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=1, intra_op_parallelism_threads=1
    )
    options.graph_options.rewrite_options.disable_meta_optimizer = True
    options.graph_options.optimizer_options.opt_level = -1
    results: list[list[Any] | Exception] = []
    with tf.compat.v1.Session(graph=theirs, config=options) as session:
        for run in runs:
            fetches = [item for item in run if isinstance(item, Output)]
            targets = [item for item in run if isinstance(item, Node)]
            try:
                results.append(
                    session.run([[f.name for f in fetches], [t.name for t in targets]])[0]
                )
            except tf.errors.OpError as error:
                results.append(error)
    return results
