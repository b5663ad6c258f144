"""TensorFlow (grappler) returns a wrong cond/Add:0: live in A, dead in B, which returns an empty array, in TensorFlow 2.21.0."""

import os

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from numpy import inf, nan

GRAPH = r"""
versions { producer: 2474 min_consumer: 12 }
node { name: "Const" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "shape" value { shape { } } } }
node { name: "cond/pred_id" op: "Placeholder" attr { key: "dtype" value { type: DT_BOOL } } attr { key: "shape" value { shape { } } } }
node { name: "cond/while/Mul/Switch" op: "Switch" input: "Const" input: "cond/pred_id" attr { key: "T" value { type: DT_INT32 } } }
node { name: "cond/Add" op: "AddV2" input: "cond/while/Mul/Switch:1" input: "cond/while/Mul/Switch:1" attr { key: "T" value { type: DT_INT32 } } }
"""
FEEDS = {
    'Const:0': np.array(0, 'int32'),
    'cond/pred_id:0': np.array(True, 'bool'),
}
SHAPES = [(), ()]
EXPECTED = {
    'cond/Add:0': np.array(0, 'int32'),
}
TOLERANCES = {}
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
