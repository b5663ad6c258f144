"""XLA (jit): "Cannot find body function" for the third of three loops."""

import tensorflow as tf


@tf.function(jit_compile=True)
def looped():
    never = lambda *_: tf.constant(False)
    x = tf.constant(6)
    y = tf.while_loop(never, lambda y: y, [x])
    z = tf.while_loop(never, lambda z: z, y)
    return tf.while_loop(never, lambda x, z: (x, z), [x, *z])


looped()
