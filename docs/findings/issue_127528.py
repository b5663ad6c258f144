"""XLA (jit): what is written past the end of a TensorArray that grows is ignored."""

import numpy as np
import tensorflow as tf


@tf.function(jit_compile=True)
def grown():
    array = tf.TensorArray(tf.bool, 1, dynamic_size=True, element_shape=[])
    array = tf.while_loop(lambda i, _: i < 2, lambda i, a: (i + 1, a.write(i, True)), [0, array])[1]
    return array.stack()


np.testing.assert_array_equal(grown(), [True, True])
