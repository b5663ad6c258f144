"""Grappler (remapping): max(x, 2 * x) becomes LeakyRelu(x) with a slope of 2, which is x for a positive x."""

import numpy as np
import tensorflow as tf


@tf.function
def scaled(x):
    return tf.maximum(x, x + x)


np.testing.assert_array_equal(scaled(tf.constant(3.0)), 6)
