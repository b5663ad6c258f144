"""XLA (jit): a loop variable that a mask empties keeps its two elements."""

import numpy as np
import tensorflow as tf


@tf.function(jit_compile=True)
def masked(x):
    shapes = [tf.TensorShape([]), tf.TensorShape([None])]
    body = lambda i, x: (i + 1, tf.boolean_mask(x, x > x))
    return tf.while_loop(lambda i, x: i < 2, body, [0, x], shapes)[1]


np.testing.assert_array_equal(masked(tf.constant([1.0, 2.0])), np.zeros(0))
