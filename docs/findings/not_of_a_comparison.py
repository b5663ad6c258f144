"""Grappler (arithmetic_optimization): not (x < y) becomes x >= y, which is False for NaN."""

import numpy as np
import tensorflow as tf


@tf.function
def not_less(x, y):
    return tf.logical_not(x < y)


np.testing.assert_array_equal(not_less(tf.constant(np.nan), tf.constant(1.0)), True)
