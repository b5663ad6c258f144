"""The second gradient of a loop of primitives (v1) is 0 without a warning; that of a functional loop is right."""

import numpy as np
import tensorflow as tf

tf.compat.v1.disable_control_flow_v2()
with tf.Graph().as_default():
    x = tf.constant(0.5)
    body = lambda i, y: (i + 1, tf.tanh(y))
    _, y = tf.compat.v1.while_loop(lambda i, _: i < 1, body, [0, x])
    (first,) = tf.gradients(y, x, unconnected_gradients="zero")
    (second,) = tf.gradients(first, x, unconnected_gradients="zero")
    with tf.compat.v1.Session() as session:
        value = session.run(second)
np.testing.assert_allclose(value, -2 * np.tanh(0.5) * (1 - np.tanh(0.5) ** 2), rtol=1e-5)
