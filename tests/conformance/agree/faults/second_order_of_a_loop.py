"""TensorFlow 2.21 returns zeros for a second derivative of a loop of primitives.

    y = 2 * tanh(x) after one iteration,  d2y/dx2 = -4 * tanh(x) * (1 - tanh(x) ** 2)

With control flow v1 the first gradient reads the forward values from stacks. No gradient passes
these, so that a second `tf.gradients` finds no path to x, and with `unconnected_gradients="zero"`
returns 0 without a warning. If the path does not lead through a stack, it raises "Second-order
gradient for while loops not supported". The functional form (v2) has the right value, and so has
cfgraph in both forms. `make agree` compares with the functional form.

Run this file: it prints both values, the right one, and if TensorFlow is wrong.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow

tf: Any = tensorflow.compat.v1


def second_derivative(*, v2: bool) -> float:
    """TensorFlow's second derivative in one of the forms of control flow."""
    (tf.enable_control_flow_v2 if v2 else tf.disable_control_flow_v2)()
    with tensorflow.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [])
        _, y = tf.while_loop(lambda i, _: i < 1, lambda i, y: (i + 1, tf.tanh(y) * 2), [0, x])
        (first,) = tf.gradients(y, x, unconnected_gradients="zero")
        (second,) = tf.gradients(first, x, unconnected_gradients="zero")
    with tf.Session(graph=graph) as session:
        return float(session.run(second, {x: 0.5}))


if __name__ == "__main__":
    right = -4 * math.tanh(0.5) * (1 - math.tanh(0.5) ** 2)
    primitive, functional = second_derivative(v2=False), second_derivative(v2=True)
    print(f"v1 {primitive}, v2 {functional}, by hand {right}")
    if not math.isclose(primitive, right, rel_tol=1e-5):
        print("TensorFlow is wrong")
