"""Grappler (arithmetic_optimization): x + x becomes 2 * x, whose 2 has a control edge from the other side."""

import numpy as np
import tensorflow as tf


@tf.function
def doubled(x, p):
    x = tf.raw_ops.Switch(data=x, pred=p).output_true
    return x + x


np.testing.assert_array_equal(doubled(tf.constant(3.0), tf.constant(True)), np.float32(6), strict=True)
