"""TensorFlow (grappler) returns a wrong Maximum:0: the value differs, in TensorFlow 2.21.0."""

import os

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from numpy import inf, nan

GRAPH = r"""
versions { producer: 2474 }
node { name: "cond/Merge" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { } } } }
node { name: "Add" op: "AddV2" input: "cond/Merge" input: "cond/Merge" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "Maximum" op: "Maximum" input: "cond/Merge" input: "Add" attr { key: "T" value { type: DT_FLOAT } } }
"""
FEEDS = {
    'cond/Merge:0': np.array(1.100000023841858, 'float32'),
}
SHAPES = [()]
EXPECTED = {
    'Maximum:0': np.array(2.200000047683716, 'float32'),
}
TOLERANCES = {
    'Maximum:0': (0.001, 0.0001),
}
graph_def = text_format.Parse(GRAPH, tf.compat.v1.GraphDef())


def body(*args):
    fed = dict(zip(FEEDS, args))
    return tf.import_graph_def(graph_def, fed, list(EXPECTED), name="")


VALUES = [tf.constant(value, shape=value.shape) for value in FEEDS.values()]
signature = [
    tf.TensorSpec(shape, value.dtype, f"feed_{number}")
    for number, (shape, value) in enumerate(zip(SHAPES, VALUES))
]
function = tf.compat.v1.wrap_function(body, signature)
actual = function(*VALUES)
for (name, value), result in zip(EXPECTED.items(), actual):
    result = np.asarray(result)
    print(name, result.tolist())
    if name in TOLERANCES:
        rtol, atol = TOLERANCES[name]
        np.testing.assert_allclose(result, value, rtol, atol, err_msg=name, strict=True)
    elif value is not None:
        np.testing.assert_array_equal(result, value, err_msg=name, strict=True)
