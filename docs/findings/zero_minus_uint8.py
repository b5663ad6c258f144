"""Grappler (constant_folding): 0 - x becomes Neg(x), which has no type uint8."""

import numpy as np
import tensorflow as tf


@tf.function
def negative(x):
    return tf.zeros([1], tf.uint8) - x


np.testing.assert_array_equal(negative(tf.constant([1], tf.uint8)), [255])
