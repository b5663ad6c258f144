"""Grappler (arithmetic_optimization): Pack(x, x) becomes a Tile, of output 0 of the node that computes x."""

import numpy as np
import tensorflow as tf


@tf.function
def twice(x):
    _, last = tf.split(x, 2)
    return tf.stack([last, last])


np.testing.assert_array_equal(twice(tf.constant([1.0, 9.0])), [[9], [9]])
