"""Grappler (arithmetic_optimization): ArgMax(Relu(x)) becomes ArgMax(x), which finds a tie's largest x, not its first."""

import numpy as np
import tensorflow as tf


@tf.function
def first_largest(x):
    return tf.argmax(tf.nn.relu(x))


np.testing.assert_array_equal(first_largest(tf.constant([-3.0, -1.0])), 0)
