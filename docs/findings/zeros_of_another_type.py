"""The gradient of a loop of primitives (v1) is rejected: its back edge is zeros of float32, also in float64."""

import tensorflow as tf

tf.compat.v1.disable_control_flow_v2()
with tf.Graph().as_default():
    v = tf.compat.v1.placeholder(tf.float64, [None])
    shapes = [tf.TensorShape([]), tf.TensorShape([None])]
    body = lambda i, v: (i + 1, tf.stop_gradient(v))
    _, after = tf.compat.v1.while_loop(lambda i, _: i < 2, body, [0, v], shapes)
    gradients = tf.gradients(after, v, unconnected_gradients="zero")
    with tf.compat.v1.Session() as session:
        session.run(gradients, {v: [1.0, 2.0]})
