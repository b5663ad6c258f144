"""A script that shows a fault of TensorFlow with TensorFlow alone; it runs no text of the graph.

It calls the graph as the process of a mode does: the same function, feeds, fetches, and targets.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from cfgraph.comparison.differences import RunDiff
from cfgraph.comparison.value_difference import default_tolerances
from cfgraph.integrations.tensorflow.mode_comparison import ModeFailed
from cfgraph.integrations.tensorflow.mode_oracle import ModeOracle
from cfgraph.integrations.tensorflow.mode_runs import needed_graph
from cfgraph.ir.dtypes import DType, resource
from cfgraph.ir.files import pbtxt_lines
from cfgraph.ir.graph import Graph
from cfgraph.ir.printable import clean
from cfgraph.processes.messages import as_array
from cfgraph.runtime.feeds.conversion import feed_type

_WITHOUT_REWRITES: Final = (
    'tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})'
)
# a declaration of an encoding counts in the first two lines, so that no title is in one of them
_FIRST_LINE: Final = '"""A fault of TensorFlow: this script fails where it is."""'


def repro_script(oracle: ModeOracle, graph: Graph, delta: RunDiff, title: str) -> str:
    """Return the script of a difference."""
    mode, hangs = oracle.mode, is_hang(delta)
    lines = [_FIRST_LINE, "", f"# {clean(title)}", "", "import os"]
    lines += ["import signal"] * hangs
    lines += ["", f'os.environ["TF_XLA_FLAGS"] = "{mode.flags}"'] if mode.flags else [""]
    lines += ["import numpy as np", "import tensorflow as tf"]
    lines += ["from google.protobuf import text_format", "from numpy import inf, nan", ""]
    lines += [f"signal.alarm({math.ceil(oracle.pool.seconds)})  # it hangs"] * hangs
    lines += [] if mode.rewrites else [_WITHOUT_REWRITES]
    lines += _data_lines(oracle, graph, delta)
    lines += ["", "", *_body_lines(delta.targets), "", "", *_CALL]
    lines += _CALLS.get(mode.name, ["actual = function(*VALUES)"])
    return "\n".join([*lines, *_checks(delta)]) + "\n"


def is_hang(delta: RunDiff) -> bool:
    """Return true if the mode did not answer."""
    return isinstance(delta.failure, ModeFailed) and delta.failure.kind == "timeout"


def _data_lines(oracle: ModeOracle, graph: Graph, delta: RunDiff) -> Iterator[str]:
    """Yield the graph, the feeds, and the expected values, as literals."""
    needed = needed_graph(graph, delta.fetches, delta.targets, delta.inputs)
    yield f"GRAPH = {text_literal(chr(10).join(['', *pbtxt_lines(needed), '']))}"
    feeds: dict[str, str] = {}
    shapes: list[tuple[int | None, ...] | None] = []
    for name, value in delta.inputs.items():
        tensor = graph.tensor(name)
        dtype, shape = feed_type(graph, tensor)
        literal = array_literal(np.asarray(value, dtype.base.numpy if dtype is not None else None))
        is_handle = tensor.dtype is resource
        feeds[name] = f"tf.Variable({literal}, shape={shape.dims})" if is_handle else literal
        shapes.append(() if is_handle else shape.dims)
    yield from _dict_lines("FEEDS", feeds)
    yield f"SHAPES = {shapes!r}"
    expected = expected_values(delta)
    yield from _dict_lines("EXPECTED", {n: array_literal(v) for n, v in expected.items()})
    tolerances = {
        name: _tolerances(oracle, np.asarray(value))
        for name, value in expected.items()
        if value is not None
    }
    inexact = {name: repr(pair) for name, pair in tolerances.items() if pair is not None}
    yield from _dict_lines("TOLERANCES", inexact)
    if delta.targets:
        yield f"TARGETS = {[name.removeprefix('^') for name in delta.targets]!r}"
    yield "graph_def = text_format.Parse(GRAPH, tf.compat.v1.GraphDef())"


def expected_values(delta: RunDiff) -> dict[str, Any]:
    """Return the right value of each fetched tensor that is wrong, None for the others.

    A dead tensor is an empty array.
    """
    values: dict[str, Any] = {name: None for name in delta.fetches if name not in delta.inputs}
    for gap in delta.gaps:
        empty = np.zeros(0, np.asarray(gap.after).dtype)
        values[gap.what] = empty if gap.before is None else gap.before
    return values


def _tolerances(oracle: ModeOracle, value: Any) -> tuple[float, float] | None:
    """Return those of the comparison, None for a type that is compared exactly."""
    dtype = DType.from_numpy(value.dtype)
    if not dtype.is_floating and not dtype.is_complex:
        return None
    default = default_tolerances(dtype)
    chosen = (oracle.options.rtol, oracle.options.atol)
    rtol, atol = (d if c is None else c for c, d in zip(chosen, default, strict=True))
    return rtol, atol


def _dict_lines(name: str, literals: Mapping[str, str]) -> Iterator[str]:
    if not literals:
        yield f"{name} = {{}}"
        return
    yield f"{name} = {{"
    yield from (f"    {key!r}: {literal}," for key, literal in literals.items())
    yield "}"


def text_literal(text: str) -> str:
    """Return an expression for a text, with its lines where that is possible."""
    literal = f'r"""{text}"""'
    try:
        readable = text.isascii() and ast.literal_eval(literal) == text
    except (SyntaxError, ValueError):
        readable = False
    return literal if readable else ascii(text)


def array_literal(value: Any) -> str:
    """Return an expression for an array, in which `nan` and `inf` are names; `None` for None."""
    if value is None:
        return "None"
    array = as_array(value)
    dtype = "object" if array.dtype.kind in "OSU" else str(array.dtype)
    if array.dtype.kind == "c":
        parts = np.ascontiguousarray(array).reshape(-1).view(array.real.dtype)
        return f"np.array({parts.tolist()!r}, {str(parts.dtype)!r}).view({dtype!r})" + (
            f".reshape({list(array.shape)})"
        )
    shaped = f".reshape({list(array.shape)})" if not array.size else ""
    return f"np.array({array.tolist()!r}, {dtype!r}){shaped}"


def _body_lines(targets: Sequence[str]) -> list[str]:
    """Return the function of the graph; targets run before its last result."""
    lines = ["def body(*args):", "    fed = dict(zip(FEEDS, args))"]
    if not targets:
        return [*lines, '    return tf.import_graph_def(graph_def, fed, list(EXPECTED), name="")']
    return [
        *lines,
        '    found = tf.import_graph_def(graph_def, fed, [*EXPECTED, *TARGETS], name="")',
        "    with tf.control_dependencies(found[len(EXPECTED) :]):",
        "        return [*found[: len(EXPECTED)], tf.constant(0)]",
    ]


_CALL: Final = (
    "VALUES = [",
    "    value.handle if isinstance(value, tf.Variable) else tf.constant(value, shape=value.shape)",
    "    for value in FEEDS.values()",
    "]",
    "signature = [",
    '    tf.TensorSpec(shape, value.dtype, f"feed_{number}")',
    "    for number, (shape, value) in enumerate(zip(SHAPES, VALUES))",
    "]",
    "function = tf.compat.v1.wrap_function(body, signature)",
)
_CALLS: Final = {
    "jit": [
        "compiled = tf.function(lambda *args: function(*args), jit_compile=True, autograph=False)",
        "actual = compiled(*VALUES)",
    ],
    "lite": [
        "converter = tf.lite.TFLiteConverter.from_concrete_functions([function], function)",
        "interpreter = tf.lite.Interpreter(model_content=converter.convert())",
        'names = [argument.name.partition(":")[0] for argument in function.inputs]',
        "values = dict(zip(names, (value.numpy() for value in VALUES)))",
        "fed = {}",
        "for item in interpreter.get_input_details():",
        '    name = item["name"].removeprefix("serving_default_").partition(":")[0]',
        '    fed[item["index"]] = values[name]',
        '    interpreter.resize_tensor_input(item["index"], values[name].shape)',
        "interpreter.allocate_tensors()",
        "for index, value in fed.items():",
        "    interpreter.set_tensor(index, value)",
        "interpreter.invoke()",
        'actual = [interpreter.get_tensor(i["index"]) for i in interpreter.get_output_details()]',
    ],
}


def _checks(delta: RunDiff) -> Iterator[str]:
    """Yield the comparison of the results."""
    yield "for (name, value), result in zip(EXPECTED.items(), actual):"
    yield "    result = np.asarray(result)"
    kinds = {np.asarray(value).dtype.kind for value in expected_values(delta).values()}
    if kinds & {*"OSU"}:
        yield '    result = result.astype(object) if result.dtype.kind == "S" else result'
    yield "    print(name, result.tolist())"
    yield "    if name in TOLERANCES:"
    yield "        rtol, atol = TOLERANCES[name]"
    if "V" in kinds:  # types of ml_dtypes, whose NaN NumPy does not know
        yield "        assert result.dtype == value.dtype, name"
        yield '        if value.dtype.kind == "V":'
        yield "            result, value = result.astype(float), value.astype(float)"
    yield "        np.testing.assert_allclose(result, value, rtol, atol, err_msg=name, strict=True)"
    yield "    elif value is not None:"
    yield "        np.testing.assert_array_equal(result, value, err_msg=name, strict=True)"
