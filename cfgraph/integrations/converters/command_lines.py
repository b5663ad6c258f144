"""Command lines that write the file of a converted model, and the export that it may need."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Final

from cfgraph.console.graph_files import Source, saved_model_contents
from cfgraph.integrations.tensorflow.modes import ONNX_OPSET
from cfgraph.ir.graph import Graph
from cfgraph.ir.serde.saved_model import SavedSignature, parse_saved_model
from cfgraph.ir.shapes import Shape
from cfgraph.ir.traversal import ancestors
from cfgraph.ops.families.constants import Placeholder
from cfgraph.ops.opdef.op import is_a

_PROGRAMS: Final = {
    "lite": "python -m tensorflow.lite.python.tflite_convert",
    "onnx": "python -m tf2onnx.convert",
}


def find_signature(source: Source, name: str | None) -> SavedSignature | None:
    """The signature of a SavedModel of that name, or its default one."""
    contents = saved_model_contents(source)
    if contents is None:
        return None
    return contents.signatures.get(name) if name else contents.default_signature


def loads_signature(
    source: Source, signature: SavedSignature | None, fetched: Sequence[str]
) -> bool:
    """True if a converter finds the fetched tensors and the variables in the SavedModel itself.

    It finds no variables in a model without objects, as TensorFlow 1 and cfgraph write it.
    """
    if signature is None:
        return False
    saved = parse_saved_model(source.data)
    has_objects = saved is not None and saved.meta_graphs[0].HasField("object_graph_def")
    outputs = {source.graph.tensor(item.tensor).name for item in signature.outputs}
    return bool(has_objects and outputs == set(fetched))


def saved_model_command(target: str, path: str, signature: SavedSignature) -> str:
    """The command line that converts a signature of a SavedModel."""
    options = {
        "lite": ["--saved_model_dir", path, "--saved_model_signature_key", signature.name],
        "onnx": ["--saved-model", path, "--tag", "serve", "--signature_def", signature.name],
    }
    return _command(target, options[target])


def graph_command(target: str, path: str, graph: Graph, fetched: Sequence[str]) -> str:
    """The command line that converts a file of a graph; its inputs are those that it needs."""
    needed = ancestors(graph, [graph.tensor(name).node for name in fetched])
    inputs = [node.output().name for node in graph if node in needed and is_a(node, Placeholder)]
    if target == "onnx":
        options = ["--graphdef", path, "--inputs", ",".join(inputs), "--outputs", ",".join(fetched)]
        return _command(target, options)
    arrays = [",".join(name.removesuffix(":0") for name in names) for names in (inputs, fetched)]
    options = ["--enable_v1_converter", "--graph_def_file", path]
    return _command(target, [*options, "--input_arrays", arrays[0], "--output_arrays", arrays[1]])


def _command(target: str, options: list[str]) -> str:
    if target == "onnx":
        options += ["--opset", str(ONNX_OPSET), "--output", "model.onnx"]
    else:
        options += ["--output_file", "model.tflite"]
    return f"{_PROGRAMS[target]} {shlex.join(options)}"


def fixed_shapes_export(graph: Graph, signature: SavedSignature | None) -> str:
    """The export of a Keras model with inputs of one example; capitals stand for other sizes."""
    nodes = [node for node in graph if is_a(node, Placeholder)]
    inputs = [(node.name, node.attrs["dtype"], node.attrs.get("shape")) for node in nodes]
    if signature is not None:
        inputs = [(item.name, item.dtype, item.shape) for item in signature.inputs]
    specs = ", ".join(
        f"tf.TensorSpec({_fixed(shape)}, tf.{dtype}, name={json.dumps(name)})"
        for name, dtype, shape in inputs
    )
    listed = f"[{specs}]" if len(inputs) > 1 else specs
    order = ", in the order of the inputs of the model" * (len(inputs) > 1)
    return f"model.export(FOLDER, input_signature=[{listed}]){order}"


def _fixed(shape: Shape | None) -> str:
    if shape is None or shape.dims is None:
        return "SHAPE"
    sizes = [str(size or (1 if axis == 0 else "SIZE")) for axis, size in enumerate(shape.dims)]
    return f"[{', '.join(sizes)}]"
