"""XLA (autojit) forms a cluster with a Pad whose width is computed, and fails: "must be a compile-time constant"."""

import os

os.environ["TF_XLA_FLAGS"] = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"
import tensorflow as tf


@tf.function
def padded(x, size):
    ones = tf.ones([1], tf.int32)
    width = tf.reduce_max(tf.math.unsorted_segment_sum(ones, ones, size))
    return tf.pad(x, [[0, width]])


padded(tf.ones([5]), tf.constant(3))
