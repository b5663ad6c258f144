"""Ops that TensorFlow Lite converts to its built-in ops, measured op by op, and those of tf2onnx.

`python -m benchmarks.converters.ops` writes `cfgraph/integrations/converters/support.toml`. Each op
is converted alone, on inputs of `tests/ops/cases` that are not all constants, and a list op on a
list of a tensor. An op is refused if nothing converts and the converter names the op;
tf2onnx has a list of its own.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import cfgraph
from benchmarks.converters.conversion import isolated, to_lite
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph
from cfgraph.ir.shapes import Shape
from tests.ops.harness import Case, all_cases

SUPPORT: Final = Path(cfgraph.__file__).parent / "integrations" / "converters" / "support.toml"
# of one op, with different types or attributes
_MAX_CASES: Final = 8
_WIDTH: Final = 110
_REFUSED: Final = ("is neither a custom op nor a flex op", "failed to legalize operation")
_TYPES: Final = frozenset(["float32", "int32", "int64", "bool", "string"])


def attempts(case: Case) -> Iterator[tuple[bytes, list[str], list[str]]]:
    """Graphs of one case: its floats are fed, then all inputs, then the first one.

    Each computes the first output alone, and then all outputs.
    """
    slots = range(len(case.inputs))
    floats = [slot for slot in slots if case.inputs[slot].dtype.kind == "f"]
    for fed in dict.fromkeys(map(tuple, (floats, slots, slots[:1]))):
        if fed:
            data, inputs, outputs = _graph(case, fed)
            yield data, inputs, outputs[:1]
            if len(outputs) > 1:
                yield data, inputs, outputs


def list_graphs() -> Iterator[tuple[str, tuple[bytes, list[str], list[str]]]]:
    """A graph for each op of lists."""
    b = cfgraph.Builder()
    x, two = b.placeholder("x", "float32", [3, 2]), [2]
    full = b.TensorListFromTensor(x, two)
    empty = b.EmptyTensorList(two, 3, element_dtype="float32")
    reserved = b.TensorListReserve(two, 3, element_dtype="float32")
    changed = {
        "TensorListFromTensor": full,
        "EmptyTensorList": b.TensorListPushBack(empty, x[0]),
        "TensorListReserve": b.TensorListSetItem(reserved, 0, x[0]),
        "TensorListPushBack": b.TensorListPushBack(full, x[0]),
        "TensorListSetItem": b.TensorListSetItem(full, 0, x[0]),
        "TensorListResize": b.TensorListResize(full, 4),
    }
    stacked = {
        op: b.TensorListStack(item, two, element_dtype="float32") for op, item in changed.items()
    }
    results = {
        **stacked,
        "TensorListStack": stacked["TensorListFromTensor"],
        "TensorListLength": b.TensorListLength(full),
        "TensorListGetItem": b.TensorListGetItem(full, 1, two, element_dtype="float32"),
        "TensorListPopBack": b.TensorListPopBack(full, two, element_dtype="float32")[1],
        "TensorListGather": b.TensorListGather(full, [0, 1], two, element_dtype="float32"),
        "TensorListElementShape": b.TensorListElementShape(full, shape_type="int32"),
    }
    for op, result in results.items():
        yield op, (cfgraph.dumps(b.graph), ["x:0"], [result.name])


def _graph(case: Case, fed: Sequence[int]) -> tuple[bytes, list[str], list[str]]:
    graph, inputs = Graph(), []
    for slot, array in enumerate(case.inputs):
        dtype = DType.from_numpy(array.dtype)
        if slot in fed:
            attrs: dict[str, Any] = {"dtype": dtype, "shape": Shape(array.shape)}
        else:
            attrs = {"dtype": dtype, "value": TensorValue(array)}
        op = "Placeholder" if slot in fed else "Const"
        inputs.append(graph.add(op, name=f"x{slot}", attrs=attrs))
    node = graph.add(case.op, *inputs, name="op", attrs=case.attrs)
    outputs = [
        graph.add("Identity", tensor, name=f"y{tensor.port}").name for tensor in node.outputs
    ]
    return cfgraph.dumps(graph), [f"x{slot}:0" for slot in fed], [f"{name}:0" for name in outputs]


def lite_verdict(op: str, tries: Sequence[tuple[bytes, list[str], list[str]]]) -> str:
    """`converts`, `refused` if the converter names the op, or nothing."""
    verdict = ""
    for data, inputs, outputs in tries:
        try:
            to_lite(data, inputs, outputs)
        except Exception as error:
            if f"'tf.{op}'" in str(error) and any(text in str(error) for text in _REFUSED):
                verdict = "refused"
        else:
            return "converts"
    return verdict


def measured() -> dict[str, list[str]]:
    """The ops by verdict."""
    tries: dict[str, list[tuple[bytes, list[str], list[str]]]] = defaultdict(list)
    seen: dict[str, set[str]] = defaultdict(set)
    for case in all_cases():
        types = [DType.from_numpy(array.dtype).name for array in case.inputs]
        sizes = [array.size for array in case.inputs]
        if case.error or not {*types} <= _TYPES or not all(sizes):
            continue
        form = f"{types} {sorted(case.attrs.items(), key=str)}"
        if form in seen[case.op] or len(seen[case.op]) == _MAX_CASES:
            continue
        seen[case.op].add(form)
        try:
            tries[case.op] += attempts(case)
        except cfgraph.CfgraphError:
            continue
    for op, attempt in list_graphs():
        tries[op] = [attempt]
    found: dict[str, list[str]] = defaultdict(list)
    for op, graphs in sorted(tries.items()):
        try:
            verdict = isolated(lite_verdict, op, graphs, seconds=60.0)
        except (RuntimeError, TimeoutError):
            verdict = ""
        found[verdict].append(op)
        print(op, verdict or "unknown", flush=True)
    return found


def onnx_ops() -> list[str]:
    """The ops for which tf2onnx has a handler."""
    import tf2onnx.onnx_opset  # noqa: F401 - registers the handlers
    from tf2onnx.handler import tf_op

    return sorted({name for sets in tf_op.get_opsets().values() for ops in sets for name in ops})


def _listed(name: str, ops: Sequence[str]) -> str:
    lines = textwrap.wrap(" ".join(ops), _WIDTH, break_on_hyphens=False)
    return f'{name} = """\n' + "\n".join(lines) + '\n"""\n'


def main() -> None:
    """Measure, and write the file."""
    found = measured()
    text = (
        "# written by `python -m benchmarks.converters.ops`\n\n[lite]\n"
        f'version = "TensorFlow {version("tensorflow-cpu")}"\n'
        f"{_listed('converts', found['converts'])}{_listed('refuses', found['refused'])}"
        f'static_elements = "EmptyTensorList TensorListReserve"\n'
        f'\n[onnx]\nversion = "tf2onnx {version("tf2onnx")}"\n{_listed("converts", onnx_ops())}'
    )
    SUPPORT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
