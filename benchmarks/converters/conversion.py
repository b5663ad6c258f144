"""Conversions of one graph, each in a process of its own with a time limit.

The processes are forks of a server that has imported the converters, so that each starts at once.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np

SECONDS: Final = 240.0
CONVERTERS: Final = {"tf2onnx": "tf2onnx", "lite": "TensorFlow Lite"}
AGREES: Final = "agrees"
_MODULES: Final = ["tensorflow", "tf2onnx", "onnxruntime"]
_OPSET: Final = 18
_RTOL, _ATOL = 1e-4, 1e-5
_MAX_MESSAGE: Final = 110

Arrays = Mapping[str, Any]


def isolated(work: Callable[..., Any], *arguments: Any, seconds: float = SECONDS) -> Any:
    """The result of a function in a process of its own.

    Raises RuntimeError if it ends without one, TimeoutError after the limit.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # tf2onnx iterates over sets of names, so that its result depends on their hashes
    os.environ.setdefault("PYTHONHASHSEED", "0")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_MODULES)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, work, arguments))
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            raise TimeoutError(f"no answer in {seconds:g} s")
        result, failure = receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"the process ended with status {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    if failure:
        raise RuntimeError(failure)
    return result


def _send(sender: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stderr.fileno())
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    try:
        sender.send((work(*arguments), ""))
    except Exception:
        sender.send((None, traceback.format_exc()))


def verdict(converter: str, data: bytes, feeds: Arrays, expected: Arrays) -> str:
    """`agrees`, or the message of a converter or runtime that rejects a graph."""
    try:
        return str(isolated(_convert_and_run, converter, data, feeds, expected))
    except RuntimeError as error:
        return f"crashes: {error}"
    except TimeoutError as error:
        return f"hangs: {error}"


def _convert_and_run(converter: str, data: bytes, feeds: Arrays, expected: Arrays) -> str:
    convert, run = (_to_onnx, _run_onnx) if converter == "tf2onnx" else (to_lite, _run_lite)
    try:
        model = convert(data, list(feeds), list(expected))
    except Exception as error:
        return f"refuses: {_shortened(error)}"
    try:
        values = run(model, feeds)
    except Exception as error:
        return f"converts, does not run: {_shortened(error)}"
    for name, value in expected.items():
        if not np.allclose(values[name], value, rtol=_RTOL, atol=_ATOL):
            return f"converts, {name} differs"
    return AGREES


def _to_onnx(data: bytes, inputs: list[str], outputs: list[str]) -> Any:
    import tensorflow as tf
    import tf2onnx

    graph = tf.compat.v1.GraphDef.FromString(data)
    model, _ = tf2onnx.convert.from_graph_def(
        graph, input_names=inputs, output_names=outputs, opset=_OPSET
    )
    return model.SerializeToString()


def _run_onnx(model: bytes, feeds: Arrays) -> Arrays:
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def to_lite(data: bytes, inputs: list[str], outputs: list[str]) -> Any:
    """A model of built-in ops alone: TensorFlow since 2.20 has no interpreter of others."""
    import tensorflow as tf

    with tempfile.NamedTemporaryFile(suffix=".pb") as file:
        Path(file.name).write_bytes(data)
        converter = tf.compat.v1.lite.TFLiteConverter.from_frozen_graph(
            file.name, *([name.removesuffix(":0") for name in names] for names in (inputs, outputs))
        )
        return outputs, converter.convert()


def _run_lite(model: tuple[list[str], bytes], feeds: Arrays) -> Arrays:
    import tensorflow as tf

    outputs, content = model
    interpreter = tf.lite.Interpreter(model_content=content)
    interpreter.allocate_tensors()
    for item in interpreter.get_input_details():
        interpreter.set_tensor(item["index"], feeds[f"{item['name']}:0"])
    interpreter.invoke()
    values = [interpreter.get_tensor(item["index"]) for item in interpreter.get_output_details()]
    return dict(zip(outputs, values, strict=True))


def _shortened(error: Exception) -> str:
    return f"{type(error).__name__} {error}"
