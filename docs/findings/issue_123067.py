"""XLA (jit): an integer loop from 0 in steps of 2 returns its initial value."""

import numpy as np
import tensorflow as tf


@tf.function(jit_compile=True)
def stepped():
    return tf.while_loop(lambda i: i < 1, lambda i: [i + 2], [tf.constant(0)])


np.testing.assert_array_equal(stepped()[0], 2)
