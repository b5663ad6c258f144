"""The processes of TensorFlow: one that has imported it, and one forked from it per mode.

Started as `python -m cfgraph.integrations.tensorflow.worker FD`, where FD is a socket. A request to
fork carries two descriptors, a socket for requests to run graphs and a file for all that
TensorFlow prints. Nothing of TensorFlow runs before the fork, so that every process has flags,
threads, and memory of its own, and a dead one is replaced without another import.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import math
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from cfgraph.integrations.tensorflow.modes import MODES, Mode
from cfgraph.processes.messages import (
    ConnectionEnded,
    ProcessMessage,
    receive,
    receive_descriptors,
    send,
)

_PR_SET_PDEATHSIG: Final = 1
# begins the names of inputs of a converted function
_SERVED: Final = "serving_default_"
# the name of the array with the graph that was run
_REWRITTEN: Final = "rewritten"
_REQUESTS: Final = itertools.count()
Answer = Callable[[Mode, ProcessMessage], ProcessMessage]


def main() -> None:
    """Import TensorFlow, then fork a process per request."""
    control = socket.socket(fileno=int(sys.argv[1]))
    _end_with_parent()
    import tensorflow as tf

    serve(control, tf.__version__, answer)


def serve(control: socket.socket, version: str, answer: Answer) -> None:
    """Answer requests to fork a process, and to wait for one, until the connection ends."""
    send(control, ProcessMessage({"version": version}))
    while True:
        try:
            request = receive(control).header
        except ConnectionEnded:
            return
        if "fork" in request:
            descriptors = receive_descriptors(control, 2)
            gc.freeze()
            pid = os.fork()
            if not pid:
                control.close()
                os.environ.update(request["environment"])
                _serve_mode(MODES[request["fork"]], request["memory"], descriptors, answer)
            for descriptor in descriptors:
                os.close(descriptor)
            send(control, ProcessMessage({"pid": pid}))
        else:
            send(
                control, ProcessMessage({"status": _exit_status(request["wait"], request["grace"])})
            )


def _exit_status(pid: int, grace: float) -> int:
    """Return the exit status of a process, which is ended after `grace` seconds."""
    deadline = time.monotonic() + grace
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            os.kill(pid, signal.SIGKILL)
            deadline = math.inf
        time.sleep(0.01)


def _end_with_parent() -> None:
    """Let the system end this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _serve_mode(mode: Mode, memory: int, descriptors: list[int], answer: Answer) -> None:
    """Answer requests of one mode until the connection ends, then exit."""
    connection = socket.socket(fileno=descriptors[0])
    status = 1
    try:
        _end_with_parent()
        for stream in (1, 2):
            os.dup2(descriptors[1], stream)
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        while True:
            send(connection, answer(mode, receive(connection)))
    except ConnectionEnded:
        status = 0
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def answer(mode: Mode, request: ProcessMessage) -> ProcessMessage:
    """Run a graph in a mode; an error of TensorFlow is an answer, too."""
    import tensorflow as tf

    try:
        return _run(tf, mode, request)
    except MemoryError:
        raise
    except Exception as error:
        return ProcessMessage({"error": type(error).__name__, "message": str(error)})
    finally:
        gc.collect(1)


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
        self.feeds = {item["name"]: item["shape"] for item in request.header["feeds"]}
        self.declared: dict[str, tuple[Any, Any]] = {}
        self.values = [
            tf.constant(request.arrays[f"feed {name}"], shape=request.arrays[f"feed {name}"].shape)
            for name in self.feeds
        ]

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
        function = self.function(names)
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
        return [np.asarray(value.numpy()) for value in results[: len(names)]]

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
                name: (value.dtype.as_numpy_dtype, value.shape) for name, value in values.items()
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


if __name__ == "__main__":
    main()
