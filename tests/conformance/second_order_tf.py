"""TensorFlow's second-order gradients of the recorded cases, by nested tapes.

TensorFlow differentiates a loop of primitives once only, and not at all where an imported graph
lacks the contexts of its program.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import cfgraph
from cfgraph.ir.library import copy_graph
from cfgraph.ir.traversal import ancestors
from tests.conformance import recorded
from tests.conformance.second_order import SecondOrder, weight_of

_NUMBERS = itertools.count()
PRIMITIVE_LOOP = "loops of primitives are differentiated once only"
ARRAY_HANDLE = "a gradient of an array outside of a graph"


class NoSecondOrder(Exception):
    """TensorFlow has no second order for a case, for this reason."""


def computed(case: dict[str, Any], first: list[Any]) -> SecondOrder:
    """TensorFlow's gradients of a case, weighted where ours of first order exist."""
    import tensorflow as tf

    message = _renamed(_message(case))
    try:
        wrapped = tf.compat.v1.wrap_function(
            lambda: tf.compat.v1.import_graph_def(message, name=""), []
        )
        _initialize(tf, wrapped, case)
        values = [_value_of(tf, wrapped, case, x) for x in case["xs"]]
        return _taped(tf, wrapped, case, values, first)
    except (LookupError, TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        raise NoSecondOrder(str(error)) from None
    except AssertionError as error:
        # `TensorArray.grad` outside of a graph has no array for a handle
        raise NoSecondOrder(ARRAY_HANDLE) from error


def _taped(
    tf: Any, wrapped: Any, case: dict[str, Any], xs: list[Any], first: list[Any]
) -> SecondOrder:
    tensor = wrapped.graph.get_tensor_by_name
    fed = [name for name in case["feeds"] if name not in case["xs"]]
    upstream = [item for item in case["grad_ys"] if isinstance(item, str)]
    function = wrapped.prune(
        [tensor(name) for name in (*case["xs"], *fed)],
        [tensor(name) for name in (*case["ys"], *upstream)],
    )
    arguments = [getattr(x, "handle", x) for x in xs]
    arguments += [tf.constant(recorded.array(case["feeds"][name])) for name in fed]
    options = {"unconnected_gradients": case["unconnected"]}
    with tf.GradientTape() as outer:
        outer.watch(xs)
        with tf.GradientTape() as inner:
            inner.watch(xs)
            results = list(function(*arguments))
        ys, weights = results[: len(case["ys"])], results[len(case["ys"]) :]
        grad_ys = [
            tf.constant(recorded.array(item["array"]))
            if isinstance(item, dict)
            else tf.ones_like(y)
            if item is None
            else weights.pop(0)
            for item, y in zip(case["grad_ys"], ys, strict=False)
        ]
        found = inner.gradient(ys, xs, output_gradients=grad_ys or None, **options)
        slopes = [None if x is None else tf.convert_to_tensor(x) for x in found]
        chosen = [
            index
            for index, slope in enumerate(slopes)
            if slope is not None and first[index] is not None
        ]
        targets = [slopes[index] for index in chosen]
        multipliers = [tf.constant(weight_of(index, slopes[index])) for index in chosen]
    second = [None] * len(xs)
    if targets:
        second = outer.gradient(targets, xs, output_gradients=multipliers, **options)
    return SecondOrder(*([_array(tf, x) for x in row] for row in (slopes, second)))


def _array(tf: Any, value: Any) -> Any:
    return None if value is None else tf.convert_to_tensor(value).numpy()


def _message(case: dict[str, Any]) -> Any:
    """The nodes that the gradients need, and the initializers, as a message.

    Raises NoSecondOrder for a loop of primitives.
    """
    from tensorflow.core.framework import graph_pb2

    graph = recorded.graph(case["graph"])
    upstream = [item for item in case["grad_ys"] if isinstance(item, str)]
    names = (*case["ys"], *case["xs"], *upstream, *case["feeds"])
    nodes = [graph.tensor(name).node for name in names]
    graph = copy_graph(graph, ancestors(graph, nodes))
    if "Enter" in graph.ops:
        raise NoSecondOrder(PRIMITIVE_LOOP)
    message = graph_pb2.GraphDef.FromString(cfgraph.dumps(graph))
    for run in case["init"]:
        _add_initializers(message, run)
    return message


def _add_initializers(message: Any, run: dict[str, Any]) -> None:
    """Add the nodes that a run needs and that a message lacks."""
    graph = recorded.graph(run["graph"])
    fetched = [graph.tensor(name).node if ":" in name else graph[name] for name in run["fetches"]]
    other = type(message).FromString(cfgraph.dumps(copy_graph(graph, ancestors(graph, fetched))))
    nodes = {node.name for node in message.node}
    functions = {function.signature.name for function in message.library.function}
    message.node.extend(node for node in other.node if node.name not in nodes)
    message.library.function.extend(
        function for function in other.library.function if function.signature.name not in functions
    )


def _renamed(message: Any) -> Any:
    """The message with functions of new names, since all cases share TensorFlow's library."""
    number = next(_NUMBERS)
    names = {f.signature.name: f"{f.signature.name}_{number}" for f in message.library.function}
    for node in (
        *message.node,
        *(node for function in message.library.function for node in function.node_def),
    ):
        node.op = names.get(node.op, node.op)
        for attr in node.attr.values():
            for func in (attr.func, *attr.list.func):
                if func.name in names:
                    func.name = names[func.name]
    for function in message.library.function:
        function.signature.name = names[function.signature.name]
    for item in message.library.gradient:
        item.function_name = names.get(item.function_name, item.function_name)
        item.gradient_func = names.get(item.gradient_func, item.gradient_func)
    return message


def _initialize(tf: Any, wrapped: Any, case: dict[str, Any]) -> None:
    graph = wrapped.graph
    for run in case["init"]:
        fetches = [
            graph.get_tensor_by_name(name) if ":" in name else graph.get_operation_by_name(name)
            for name in run["fetches"]
        ]
        feeds = [tf.constant(recorded.array(key)) for key in run["feeds"].values()]
        wrapped.prune([graph.get_tensor_by_name(name) for name in run["feeds"]], fetches)(*feeds)


def _value_of(tf: Any, wrapped: Any, case: dict[str, Any], x: str) -> Any:
    """The value of an x, or a variable with the value of the one that it refers to."""
    if x in case["feeds"]:
        return tf.constant(recorded.array(case["feeds"][x]))
    tensor = wrapped.graph.get_tensor_by_name(x)
    (value,) = wrapped.prune([], [tensor])()
    if tensor.dtype != tf.resource:
        return value
    dtype = tensor.op.get_attr("dtype")
    variable = tf.Variable(tf.raw_ops.ReadVariableOp(resource=value, dtype=dtype))
    _set_handle_data(tensor, variable)
    return variable


def _set_handle_data(handle: Any, variable: Any) -> None:
    """Set type and shape of a handle, which imported graphs lack and gradients need."""
    from tensorflow.python.ops import handle_data_util

    handle_data_util.set_handle_data(handle, handle_data_util.get_handle_data(variable.handle))


def difference(have: list[Any], want: list[Any], xs: list[str], *, random: bool) -> str:
    """The difference between gradients of second order; none is the same as zeros."""
    for x, mine, other in zip(xs, have, want, strict=True):
        if mine is None or other is None:
            only = other if mine is None else mine
            if only is not None and np.any(only):
                return f"{x}: {mine}, TensorFlow has {other}"
            continue
        failure = recorded.compare(mine, other, shapes_only=random, loosen=20)
        if failure:
            return f"{x}: {failure}"
    return ""
