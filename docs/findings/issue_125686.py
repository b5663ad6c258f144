"""Grappler (constant_folding, arithmetic_optimization, dependency_optimization): Reshape(x) + x dies in a loop."""

import numpy as np
import tensorflow as tf


@tf.function
def doubled(x):
    body = lambda i, x: (i + 1, tf.reshape(x, [-1, 1]) + x)
    return tf.while_loop(lambda i, x: i < 5, body, [0, x])[1]


np.testing.assert_array_equal(doubled(tf.ones([4, 1])), np.full([4, 1], 32))
