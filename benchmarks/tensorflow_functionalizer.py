"""TensorFlow's own functionalizer, which its Lite converter calls for graphs of TensorFlow 1.

    python -m benchmarks.tensorflow_functionalizer JOBS

prints a line per graph: its number, and the error, empty if no primitive remains. TensorFlow may
abort or hang, so that each graph has a process of its own, a fork of one that loaded the library.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[1]
_SECONDS: Final = 10  # per graph
_TOTAL_SECONDS: Final = 500
_INT32: Final = 3  # the number of the type
# names of tensors, with the numbers of their types, and of targets with ^ in front
Outputs = tuple[tuple[str, int], ...]
Source = tuple[bytes, Outputs]
_PRIMITIVES: Final = re.compile(r"\btf(?:_executor)?\.(\w*(?:Switch|SwitchN|Merge|Enter))\b")


def errors(graphs: Iterable[Source]) -> dict[Source, str]:
    """Return the error for each graph and its outputs, empty for those that it functionalizes."""
    unique = list(dict.fromkeys(graphs))
    with tempfile.TemporaryDirectory() as folder:
        jobs = Path(folder, "jobs.json")
        texts = [(data.hex(), outputs) for data, outputs in unique]
        jobs.write_text(json.dumps(texts), encoding="utf-8")
        command = [sys.executable, "-m", "benchmarks.tensorflow_functionalizer", str(jobs)]
        output = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, cwd=_ROOT
        ).stdout.decode(errors="replace")
    lines = [line.partition("\t") for line in output.splitlines()]
    texts_by_number = {int(number): text for number, tab, text in lines if tab}
    return {graph: texts_by_number[number] for number, graph in enumerate(unique)}


def _worker(jobs: Path) -> None:
    """Print a line per graph of the file."""
    import tensorflow  # noqa: F401 - loads the library once for all forks

    deadline = time.monotonic() + _TOTAL_SECONDS
    for number, (data, outputs) in enumerate(json.loads(jobs.read_text(encoding="utf-8"))):
        if time.monotonic() > deadline:
            print(f"{number}\tnot measured: {_TOTAL_SECONDS} s have passed", flush=True)
            continue
        process = os.fork()
        if not process:
            signal.alarm(_SECONDS)
            error = _error(bytes.fromhex(data), outputs, jobs.parent / str(number))
            print(f"{number}\t{error}", flush=True)
            os._exit(0)
        _, status = os.waitpid(process, 0)
        if status:
            print(f"{number}\t{_ending(os.waitstatus_to_exitcode(status))}", flush=True)


def _ending(code: int) -> str:
    """Describe how a process ended that did not answer."""
    if code == -signal.SIGALRM:
        return f"no answer in {_SECONDS} s"
    return f"ended with status {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"


def _error(data: bytes, outputs: Outputs, folder: Path) -> str:
    """Import a graph as a SavedModel of version 1, as the Lite converter does."""
    from tensorflow.python import _pywrap_mlir

    folder.mkdir()
    Path(folder, "saved_model.pb").write_bytes(_saved_model(data, outputs))
    try:
        # all names, one tag, upgrade_legacy (which functionalizes), no debug information
        text = _pywrap_mlir.ExperimentalConvertSavedModelV1ToMlirLite(
            str(folder), "", "serve", True, False
        )
    except Exception as error:
        return " ".join(str(error).split())[:400] or type(error).__name__
    remaining = _PRIMITIVES.search(text)
    return f"{remaining[1]} remains" if remaining else ""


def _saved_model(data: bytes, outputs: Sequence[tuple[str, int]]) -> bytes:
    """A SavedModel with what the outputs need, and one signature: all placeholders, the outputs."""
    from tensorflow.compat.v1 import graph_util
    from tensorflow.core.framework import graph_pb2
    from tensorflow.core.protobuf import saved_model_pb2

    graph = graph_pb2.GraphDef.FromString(data)
    results = [_add_result(graph, name, dtype) for name, dtype in outputs]
    model: Any = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    meta = model.meta_graphs.add()
    # all that is in the graph would be functionalized
    meta.graph_def.CopyFrom(graph_util.extract_sub_graph(graph, [node.name for node in results]))
    meta.meta_info_def.tags.append("serve")
    signature = meta.signature_def["serving_default"]
    signature.method_name = "tensorflow/serving/predict"
    for node in meta.graph_def.node:
        if node.op == "Placeholder":
            tensor = signature.inputs[node.name]
            tensor.name, tensor.dtype = f"{node.name}:0", node.attr["dtype"].type
            tensor.tensor_shape.CopyFrom(node.attr["shape"].shape)
    for node in results:
        tensor = signature.outputs[node.name]
        dtype = node.attr["dtype" if node.op == "Const" else "T"].type
        tensor.name, tensor.dtype = f"{node.name}:0", dtype
        tensor.tensor_shape.unknown_rank = True
    return bytes(model.SerializeToString())


def _add_result(graph: Any, name: str, dtype: int) -> Any:
    """Add a node that reads an output, or a constant that waits for a target.

    A signature has no targets, and misses an Exit or a Merge that was replaced.
    """
    node = graph.node.add(name=f"signature_{len(graph.node)}", input=[name])
    if name.startswith("^"):
        node.op = "Const"
        node.attr["dtype"].type = _INT32
        value = node.attr["value"].tensor
        value.dtype = _INT32
        value.int_val.append(0)
        value.tensor_shape.SetInParent()
    else:
        node.op = "Identity"
        node.attr["T"].type = dtype
    return node


if __name__ == "__main__":
    _worker(Path(sys.argv[1]))
