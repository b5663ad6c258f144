"""TensorFlow 2.21 builds a gradient that it rejects, for a loop variable whose update has none.

    v (float64, of unknown size) becomes stop_gradient(v) in each iteration

With control flow v1, the back edge of the gradient of v is `zeros(shape(dv))`, without a type, and
so float32: "Input 1 of node ... was passed float from NextIteration:0 incompatible with expected
double". The functional form (v2) returns zeros of float64. `make agree` counts such programs as not
run. cfgraph's gradients of the same graph run.

Run this file: it prints both results, and if TensorFlow is wrong.
"""

from __future__ import annotations

from typing import Any

import tensorflow

tf: Any = tensorflow.compat.v1


def gradient(*, v2: bool) -> str:
    """TensorFlow's gradient in one of the forms of control flow, or the message of its error."""
    (tf.enable_control_flow_v2 if v2 else tf.disable_control_flow_v2)()
    with tensorflow.Graph().as_default() as graph:
        v = tf.placeholder(tf.float64, [None])
        variables = [tf.constant(0), v]
        _, after = tf.while_loop(
            lambda i, _: i < 2,
            lambda i, v: (i + 1, tf.stop_gradient(v)),
            variables,
            shape_invariants=[tensorflow.TensorShape([]), tensorflow.TensorShape([None])],
        )
        (dv,) = tf.gradients(after, v, unconnected_gradients="zero")
    with tf.Session(graph=graph) as session:
        try:
            return str(session.run(dv, {v: [1.0, 2.0]}))
        except tf.errors.InvalidArgumentError as error:
            return str(error.message)


if __name__ == "__main__":
    primitive, functional = gradient(v2=False), gradient(v2=True)
    print(f"v1: {primitive}\nv2: {functional}")
    if "incompatible" in primitive:
        print("TensorFlow is wrong")
