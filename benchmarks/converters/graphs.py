"""Lowered graphs that TensorFlow builds: control flow of TensorFlow 1, and Grappler's lowering.

A builder runs in a process of its own, since both are switches of a process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

Arrays = dict[str, Any]
Built = tuple[list[Any], Arrays]
_UNITS: Final = 4
_STEPS: Final = 5
_BATCH: Final = 2
_TRAINING: Final = "is_training:0"


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """A graph, the values of its inputs, and TensorFlow's values of its outputs, by tensor.

    A graph with `variables`, by name, is frozen with `fixed` values of inputs.
    """

    data: bytes
    feeds: Arrays
    expected: Arrays
    variables: Arrays = field(default_factory=dict)
    fixed: Arrays = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Example:
    """A title, and a function that adds nodes to a graph and returns outputs and feeds.

    With `is_function` it returns a function of TensorFlow 2 and its argument.
    """

    title: str
    build: Callable[[Any], Any]
    is_function: bool = False


def build(name: str) -> LoweredGraph:
    """Build the graph of an example and run it in TensorFlow."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    return _frozen_function(tf, name) if EXAMPLES[name].is_function else _old_graph(tf, name)


def _old_graph(tf: Any, name: str) -> LoweredGraph:
    """A graph with the control flow of TensorFlow 1."""
    tf.compat.v1.disable_v2_behavior()
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        results, feeds = EXAMPLES[name].build(tf)
        results = [tf.identity(result, name=f"y{k}") for k, result in enumerate(results)]
        session.run(tf.compat.v1.global_variables_initializer())
        variables = {item.op.name: session.run(item) for item in tf.compat.v1.global_variables()}
        expected = {result.name: session.run(result, feeds) for result in results}
        nodes = [result.op.name for result in results]
        data = tf.compat.v1.graph_util.extract_sub_graph(graph.as_graph_def(), nodes)
    fixed = {name: value for name, value in feeds.items() if name == _TRAINING}
    return LoweredGraph(data.SerializeToString(), feeds, expected, variables, fixed)


def _frozen_function(tf: Any, name: str) -> LoweredGraph:
    """The function of TensorFlow 2, frozen and lowered as by `convert_variables_to_constants_v2`.

    That is how graphs without old control flow get it: Grappler lowers If, Case, and While.
    """
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    function, array = EXAMPLES[name].build(tf)
    spec = tf.TensorSpec(array.shape, array.dtype, name="x")
    frozen = convert_variables_to_constants_v2(tf.function(function).get_concrete_function(spec))
    (source,), results = frozen.inputs, frozen.outputs
    values = frozen(tf.constant(array))
    expected = {result.name: x.numpy() for result, x in zip(results, values, strict=True)}
    data = frozen.graph.as_graph_def().SerializeToString()
    return LoweredGraph(data, {source.name: array}, expected)


def _input(tf: Any, array: Any) -> tuple[Any, Arrays]:
    """A placeholder with the type and shape of an array, and what to feed."""
    array = np.asarray(array)
    tensor = tf.compat.v1.placeholder(array.dtype, array.shape, name="x")
    return tensor, {tensor.name: array}


def _draw(*shape: int) -> Any:
    """Numbers from a normal distribution, the same in every run."""
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def _vector(tf: Any) -> tuple[Any, Arrays]:
    return _input(tf, np.array([1, -2, 3], np.float32))


# -- conditionals ----------------------------------------------------------------------------------


def _conditional(tf: Any) -> Built:
    x, feeds = _vector(tf)
    return [tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: x - 1)], feeds


def _nested_conditionals(tf: Any) -> Built:
    x, feeds = _vector(tf)

    def inner() -> Any:
        return tf.cond(x[0] > 0, lambda: _doubled(tf, x), lambda: x + 3)

    return [tf.cond(tf.reduce_sum(x) > 0, inner, lambda: x - 1)], feeds


def _switch(tf: Any, value: Any, predicate: Any) -> tuple[Any, Any]:
    result = tf.raw_ops.Switch(data=value, pred=predicate)
    return result.output_false, result.output_true


def _equal_predicates(tf: Any) -> Built:
    """One conditional whose branches were entered by And(a, b) and And(b, a)."""
    x, feeds = _vector(tf)
    a, b = tf.reduce_sum(x) > 0, tf.reduce_max(x) < 5
    taken = _switch(tf, x, tf.logical_and(a, b))[1] * 2
    otherwise = _switch(tf, x + 1, tf.logical_and(b, a))[0]
    return [tf.raw_ops.Merge(inputs=[otherwise, taken]).output], feeds


def _three_way_merge(tf: Any) -> Built:
    """A chain of two conditionals that share a Merge."""
    x, feeds = _vector(tf)
    first, second = x[0] > 2, x[1] > 2
    rest, one = _switch(tf, x, first)
    chosen = _switch(tf, second, first)[0]
    three, two = _switch(tf, rest, chosen)
    return [tf.raw_ops.Merge(inputs=[one * 2, two + 1, three * 3]).output], feeds


def _switch_case(tf: Any) -> tuple[Callable[[Any], Any], Any]:
    def function(x: Any) -> Any:
        branches = [lambda: x * 2, lambda: x + 1, lambda: tf.sin(x), lambda: x - 4]
        return tf.switch_case(tf.cast(x[2], tf.int32), branches)

    return function, np.array([1, -2, 3], np.float32)


# -- loops -----------------------------------------------------------------------------------------


def _doubled(tf: Any, x: Any) -> Any:
    limit = tf.reduce_max(tf.abs(x)) * 4
    loop = tf.while_loop(lambda v: tf.reduce_max(tf.abs(v)) < limit, lambda v: v * 2, [x])
    return loop[0] if isinstance(loop, list) else loop


def _loop(tf: Any) -> Built:
    x, feeds = _vector(tf)
    return [_doubled(tf, x)], feeds


def _nested_loop(tf: Any) -> Built:
    x, feeds = _vector(tf)

    def outer(i: Any, v: Any) -> Any:
        step = tf.cast(i + 1, tf.float32)
        inner = tf.while_loop(
            lambda j, _: j <= i, lambda j, w: (j + 1, tf.sin(w) + step), [tf.constant(0), v]
        )
        return i + 1, inner[1]

    return [tf.while_loop(lambda i, _: i < 3, outer, [tf.constant(0), x])[1]], feeds


def _gradient(tf: Any) -> Built:
    x, feeds = _vector(tf)
    body = lambda i, v: (i + 1, tf.sin(v) * x)  # noqa: E731
    y = tf.while_loop(lambda i, _: i < 3, body, [tf.constant(0), x])[1]
    return [tf.gradients(y, x)[0]], feeds


def _map_fn(tf: Any) -> Built:
    x, feeds = _input(tf, _draw(_STEPS, _UNITS))

    def row(v: Any) -> Any:
        return tf.cond(tf.reduce_sum(v) > 0, lambda: v * 2, lambda: -v)

    return [tf.map_fn(row, x)], feeds


# -- models ----------------------------------------------------------------------------------------


def _dynamic_rnn(tf: Any) -> Built:
    """An LSTM over sequences of two lengths."""
    from tensorflow.python.ops import rnn

    x, feeds = _input(tf, _draw(_BATCH, _STEPS, _UNITS))
    kernel, bias = _draw(2 * _UNITS, 4 * _UNITS), _draw(4 * _UNITS)

    class Cell:
        """The least that `dynamic_rnn` calls."""

        output_size = _UNITS
        state_size = (_UNITS, _UNITS)
        zero_state = None

        def __call__(self, inputs: Any, state: Any) -> tuple[Any, Any]:
            c, h = state
            gates = tf.matmul(tf.concat([inputs, h], 1), kernel) + bias
            i, j, f, o = tf.split(gates, 4, axis=1)
            c = tf.sigmoid(f + 1) * c + tf.sigmoid(i) * tf.tanh(j)
            h = tf.sigmoid(o) * tf.tanh(c)
            return h, (c, h)

    zero = tf.zeros([_BATCH, _UNITS])
    outputs, state = rnn.dynamic_rnn(
        Cell(), x, sequence_length=tf.constant([_STEPS, 3]), initial_state=(zero, zero)
    )
    return [outputs, state[1]], feeds


def _beam_search(tf: Any) -> Built:
    """Keeps the three best sequences of words of a table of transitions."""
    width, words = 3, 6
    x, feeds = _input(tf, _draw(words, words))
    scores = tf.nn.log_softmax(x)

    def step(t: Any, total: Any, ends: Any, paths: Any) -> Any:
        options = tf.reshape(tf.expand_dims(total, 1) + tf.gather(scores, ends), [-1])
        best, picks = tf.math.top_k(options, width)
        parents, words_now = picks // words, picks % words
        column = tf.expand_dims(words_now, 1)
        longer = tf.concat([tf.gather(paths, parents)[:, 1:], column], 1)
        return t + 1, best, words_now, tf.reshape(longer, [width, _STEPS])

    start = [
        tf.constant(0),
        tf.constant([0.0, -1e9, -1e9]),
        tf.zeros([width], tf.int32),
        tf.zeros([width, _STEPS], tf.int32),
    ]
    last = tf.while_loop(lambda t, *_: t < _STEPS, step, start)
    return [last[1], last[3]], feeds


def _detection(tf: Any) -> Built:
    """Non-maximum suppression per class in a loop, which skips classes without a score."""
    boxes, classes, kept = 12, 3, 4
    corners = np.sort(np.random.default_rng(1).random((boxes, 2, 2)), axis=1)
    shape = tf.constant(corners.reshape(boxes, 4), tf.float32)
    weights = np.array([[1], [0.01], [1]], np.float32)
    scores, feeds = _input(tf, np.abs(_draw(classes, boxes)) * weights)

    def select(score: Any) -> Any:
        return tf.raw_ops.NonMaxSuppressionV4(
            boxes=shape,
            scores=score,
            max_output_size=kept,
            iou_threshold=0.3,
            score_threshold=0.0,
            pad_to_max_output_size=True,
        )[0]

    def step(k: Any, found: Any) -> Any:
        score = scores[k]
        picks = tf.cond(
            tf.reduce_max(score) > 0.5,
            lambda: tf.reshape(select(score), [kept]),
            lambda: tf.fill([kept], -1),
        )
        return k + 1, found.write(k, picks)

    array = tf.TensorArray(tf.int32, size=classes, element_shape=[kept])
    last = tf.while_loop(lambda k, _: k < classes, step, [tf.constant(0), array])
    return [last[1].stack()], feeds


def _attention(tf: Any) -> Built:
    """A decoder that reads all inputs in each step and feeds its result back."""
    x, feeds = _input(tf, _draw(_BATCH, _STEPS, _UNITS))
    kernel, out_kernel = _draw(2 * _UNITS, _UNITS), _draw(_UNITS, _UNITS)
    length, end = 4, 2.0

    def step(t: Any, state: Any, written: Any) -> Any:
        weights = tf.nn.softmax(tf.reduce_sum(x * tf.expand_dims(state, 1), 2))
        context = tf.reduce_sum(x * tf.expand_dims(weights, 2), 1)
        new = tf.tanh(tf.matmul(tf.concat([context, state], 1), kernel))
        new = tf.cond(
            tf.reduce_max(tf.abs(new)) < end, lambda: tf.matmul(new, out_kernel), lambda: new
        )
        return t + 1, new, written.write(t, new)

    array = tf.TensorArray(tf.float32, size=length, element_shape=[_BATCH, _UNITS])
    start = [tf.constant(0), tf.zeros([_BATCH, _UNITS]), array]
    last = tf.while_loop(lambda t, *_: t < length, step, start)
    return [last[2].stack()], feeds


def _keras_gru(tf: Any) -> tuple[Callable[[Any], Any], Any]:
    """Keras' GRU, which on other devices than GPUs is a loop."""
    layer = tf.keras.layers.GRU(_UNITS, return_sequences=True)
    layer.build((_BATCH, _STEPS, _UNITS))
    return layer, _draw(_BATCH, _STEPS, _UNITS)


def _training(tf: Any) -> Built:
    """A layer that subtracts the mean of the batch, or a variable, as `is_training` says."""
    x, feeds = _input(tf, _draw(_BATCH, _UNITS))
    is_training = tf.compat.v1.placeholder(tf.bool, [], name="is_training")
    tf.compat.v1.enable_resource_variables()
    kernel = tf.compat.v1.get_variable("kernel", initializer=_draw(_UNITS, _UNITS))
    mean = tf.compat.v1.get_variable("mean", initializer=_draw(_UNITS))

    def batch_mean() -> Any:
        with tf.control_dependencies([tf.compat.v1.assign(mean, tf.reduce_mean(x, 0))]):
            return tf.reduce_mean(x, 0)

    center = tf.cond(is_training, batch_mean, mean.read_value)
    return [tf.matmul(x - center, kernel)], feeds | {is_training.name: np.array(False)}


EXAMPLES: Final[Mapping[str, Example]] = {
    "conditional": Example("conditional", _conditional),
    "nested_conditionals": Example("nested conditionals, one with a loop", _nested_conditionals),
    "equal_predicates": Example("two equal predicates", _equal_predicates),
    "three_way_merge": Example("Merge of three", _three_way_merge),
    "switch_case": Example("`_SwitchN` and a Merge of four", _switch_case, is_function=True),
    "loop": Example("loop", _loop),
    "nested_loop": Example("nested loop", _nested_loop),
    "gradient": Example("gradient of a loop", _gradient),
    "map_fn": Example("`map_fn` with a conditional", _map_fn),
    "dynamic_rnn": Example("`dynamic_rnn` with an LSTM", _dynamic_rnn),
    "beam_search": Example("beam search", _beam_search),
    "detection": Example("detection: suppression in a loop", _detection),
    "attention": Example("attention decoder", _attention),
    "keras_gru": Example("Keras GRU", _keras_gru, is_function=True),
    "training": Example("variables and `is_training` (`freeze` first)", _training),
}
