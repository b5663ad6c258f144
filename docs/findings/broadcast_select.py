"""Grappler (constant_folding): a SelectV2 that broadcasts becomes BroadcastTo, whose shape has a control edge from
the other side of the conditional of an operand: it never runs."""

import numpy as np
import tensorflow as tf


@tf.function
def selected(x):
    yes = tf.constant(True)
    return tf.where(yes, 0.0, tf.raw_ops.Switch(data=x, pred=yes).output_true)


np.testing.assert_array_equal(selected(tf.ones([2])), np.zeros(2))
