"""Runs of graphs in the modes of TensorFlow, each mode in a process of its own."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from cfgraph.integrations.tensorflow.modes import ONNX_OPSET, Mode
from cfgraph.processes.messages import ProcessMessage, as_array

# begins the names of inputs of a converted function
_SERVED: Final = "serving_default_"
# the name of the array with the graph that was run
_REWRITTEN: Final = "rewritten"
_REQUESTS: Final = itertools.count()


class ConversionRefused(Exception):
    """A graph that tf2onnx does not convert."""


def answer(mode: Mode, request: ProcessMessage) -> ProcessMessage:
    """Run a graph in a mode; an error of TensorFlow is an answer, too."""
    import tensorflow as tf

    try:
        return _run(tf, mode, request)
    except MemoryError:
        raise
    except ConversionRefused as refusal:
        return failed("unsupported", str(refusal), type(refusal.__cause__).__name__)
    except Exception as error:
        return failed("error", str(error), type(error).__name__)
    finally:
        gc.collect(1)


def failed(kind: str, message: str, error: str = "") -> ProcessMessage:
    """Return the answer of a run that failed; `error` is the class of TensorFlow's error."""
    return ProcessMessage({"failure": {"kind": kind, "message": message, "error": error}})


def _run(tf: Any, mode: Mode, request: ProcessMessage) -> ProcessMessage:
    options = {"disable_meta_optimizer": not mode.rewrites}
    options |= dict.fromkeys(request.header.get("without", ()), False)
    tf.config.optimizer.set_experimental_options(options)
    call = GraphCall(tf, mode, request)
    if not request.header.get("collect"):
        return call.run(request.header["fetches"])
    from tensorflow.python.eager import context

    context.context().enable_graph_collection()
    reply = call.run(request.header["fetches"])
    graphs = context.context().export_run_metadata().function_graphs
    data = graphs[-1].post_optimization_graph.SerializeToString() if graphs else b""
    return ProcessMessage(reply.header, {_REWRITTEN: np.frombuffer(data, np.uint8)})


def rename_functions(graph_def: Any, suffix: str) -> None:
    """Give the functions of a graph new names: a process keeps those of all its requests."""
    library = graph_def.library
    names = {function.signature.name for function in library.function}
    for function in library.function:
        function.signature.name += suffix
    for gradient in library.gradient:
        gradient.function_name += suffix
        gradient.gradient_func += suffix
    bodies = (function.node_def for function in library.function)
    for node in itertools.chain(graph_def.node, *bodies):
        if node.op in names:
            node.op += suffix
        for value in node.attr.values():
            for called in _calls(value):
                if called.name in names:
                    called.name += suffix


def _calls(value: Any) -> list[Any]:
    """Return the functions in an attribute, without setting the field by reading it."""
    kind = value.WhichOneof("value")
    return [value.func] if kind == "func" else list(value.list.func) if kind == "list" else []


class GraphCall:
    """Calls of one graph: feeds are the arguments of a function, fetches its results."""

    def __init__(self, tf: Any, mode: Mode, request: ProcessMessage) -> None:
        self.tf, self.mode = tf, mode
        self.graph_def = tf.compat.v1.GraphDef()
        self.graph_def.ParseFromString(request.arrays["graph"].tobytes())
        rename_functions(self.graph_def, f"_r{next(_REQUESTS)}")
        self.targets = list(request.header.get("targets", ()))
        self.feeds: dict[str, Any] = {}
        self.declared: dict[str, tuple[Any, Any]] = {}
        self.variables: list[Any] = []
        self.values: list[Any] = []
        for item in request.header["feeds"]:
            self.add_argument(item, request.arrays[f"feed {item['name']}"])

    def add_argument(self, item: Mapping[str, Any], array: Any) -> None:
        """Add an argument of the function; an array for a handle is the value of a variable."""
        self.feeds[item["name"]] = () if item["is_handle"] else item["shape"]
        if not item["is_handle"]:
            self.values.append(self.tf.constant(array, shape=array.shape))
            return
        self.variables.append(self.tf.Variable(array, trainable=False, shape=item["shape"]))
        self.values.append(self.variables[-1].handle)

    def run(self, names: list[str]) -> ProcessMessage:
        """Return the fetched values.

        A function returns an empty array for a dead tensor: `dead` lists those whose type or static
        shape is another one, `empty` those that may be live.
        """
        values = dict(zip(names, self.call(names), strict=True))
        empty = [name for name, value in values.items() if value.shape == (0,)]
        if not self.mode.has_dead_values:
            empty = []
        dead = [name for name in empty if not self.is_possible(name, values[name])]
        header = {"dead": dead, "empty": [name for name in empty if name not in dead]}
        return ProcessMessage(header, values)

    def is_possible(self, name: str, value: Any) -> bool:
        """Return true if a value has the declared type and static shape of a tensor."""
        dtype, shape = self.declared[name]
        return bool(dtype == value.dtype and shape.is_compatible_with(value.shape))

    def call(self, names: list[str]) -> list[Any]:
        """Return the values of one call of the function."""
        if self.mode.name == "onnx":
            return self.run_onnx(self.graph_def, [*self.feeds], names)
        function = self.function(names)
        if self.mode.name == "saved_model_onnx":
            return self.run_onnx(*self.inlined(function, len(names)))
        if self.mode.name == "lite":
            return self.interpret(function, len(names))
        if self.mode.name == "jit":
            results = self.tf.function(
                lambda *values: function(*values),  # noqa: PLW0108 - it inspects a function
                jit_compile=True,
                autograph=False,
            )(*self.values)
        else:
            results = function(*self.values)
        return [as_array(value.numpy()) for value in results[: len(names)]]

    def function(self, names: list[str]) -> Any:
        """Return the graph as a function."""
        tf = self.tf
        signature = [
            tf.TensorSpec(shape, value.dtype, f"feed_{number}")
            for number, (shape, value) in enumerate(
                zip(self.feeds.values(), self.values, strict=True)
            )
        ]

        def body(*arguments: Any) -> list[Any]:
            fed = dict(zip(self.feeds, arguments, strict=True))
            fetched = [name for name in names if name not in fed]
            found = tf.import_graph_def(
                self.graph_def,
                input_map=fed,
                return_elements=[*fetched, *self.targets],
                name="",
            )
            values = dict(zip(fetched, found, strict=False)) | fed
            results = [values[name] for name in names]
            self.declared = {
                name: (values[name].dtype.as_numpy_dtype, values[name].shape) for name in names
            }
            if self.targets:
                with tf.control_dependencies(found[len(fetched) :]):
                    results.append(tf.constant(0))
            return results

        return tf.compat.v1.wrap_function(body, signature)

    def interpret(self, function: Any, count: int) -> list[Any]:
        """Return the values of the converted function."""
        lite = self.tf.lite
        converter = lite.TFLiteConverter.from_concrete_functions([function], function)
        model = converter.convert()
        interpreter = lite.Interpreter(model_content=model)
        arguments = {
            argument.name.partition(":")[0]: value.numpy()
            for argument, value in zip(function.inputs, self.values, strict=True)
        }
        details = [
            (item["index"], arguments[item["name"].removeprefix(_SERVED).partition(":")[0]])
            for item in interpreter.get_input_details()
        ]
        for index, value in details:
            interpreter.resize_tensor_input(index, value.shape)
        interpreter.allocate_tensors()
        for index, value in details:
            interpreter.set_tensor(index, value)
        interpreter.invoke()
        results = [
            interpreter.get_tensor(item["index"]) for item in interpreter.get_output_details()
        ]
        return [np.array(value) for value in results[:count]]

    def inlined(self, function: Any, count: int) -> tuple[Any, list[str], list[str]]:
        """Return the graph that tf2onnx makes of a function, and its inputs and outputs."""
        from tensorflow.python.framework import convert_to_constants

        frozen = convert_to_constants.convert_variables_to_constants_v2(
            function, lower_control_flow=False, aggressive_inlining=True
        )
        inputs = [f"feed_{number}:0" for number in range(len(self.values))]
        outputs = [tensor.name for tensor in frozen.outputs[:count]]
        return frozen.graph.as_graph_def(add_shapes=True), inputs, outputs

    def run_onnx(self, graph_def: Any, inputs: list[str], names: list[str]) -> list[Any]:
        """Return the values of the model of tf2onnx, in onnxruntime."""
        import onnxruntime
        import tf2onnx

        try:
            model, _ = tf2onnx.convert.from_graph_def(
                graph_def, input_names=inputs, output_names=names, opset=ONNX_OPSET
            )
        except MemoryError:
            raise
        except Exception as error:
            raise ConversionRefused(str(error)) from error
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        values = dict(zip(inputs, self.values, strict=True))
        read = [item.name for item in session.get_inputs()]
        results = session.run(names, {name: as_array(values[name].numpy()) for name in read})
        return [as_array(value) for value in results]
