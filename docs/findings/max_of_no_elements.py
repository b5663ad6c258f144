"""Grappler (arithmetic_optimization): Max(Tanh(x)) becomes Tanh(Max(x)), which is -1 for no elements."""

import numpy as np
import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec([None])])
def largest(x):
    return tf.reduce_max(tf.tanh(x))


np.testing.assert_array_equal(largest(tf.zeros([0])), -np.inf)
