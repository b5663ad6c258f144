"""Grappler (arithmetic_optimization): Square(x - y) becomes SquaredDifference, which has no kernel for int8."""

import tensorflow as tf


@tf.function
def squared(x, y):
    return tf.square(x - y)


squared(tf.constant([3], tf.int8), tf.constant([1], tf.int8))
