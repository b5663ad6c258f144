"""Grappler: a Switch by a SelectV2 of two equal inputs becomes a cycle; SIGSEGV in about half of the calls."""

import tensorflow as tf


def switched(p):
    no = tf.constant(False)
    sides = tf.raw_ops.Switch(data=p, pred=tf.raw_ops.SelectV2(condition=no, t=p, e=p))
    return tf.identity(sides.output_true), tf.logical_and(sides.output_false, no)


for _ in range(20):  # Grappler rewrites each of them
    function = tf.compat.v1.wrap_function(switched, [tf.TensorSpec([], tf.bool)])
    function(tf.constant(False))
