"""TensorFlow (grappler) returns a wrong Max:0: the value differs, in TensorFlow 2.21.0."""

import os

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

GRAPH = r"""
versions { producer: 2474 min_consumer: 12 }
node { name: "TensorListStack" op: "Placeholder" attr { key: "dtype" value { type: DT_DOUBLE } } attr { key: "shape" value { shape { dim { size: -1 } } } } }
node { name: "Tanh" op: "Tanh" input: "TensorListStack" attr { key: "T" value { type: DT_DOUBLE } } }
node { name: "Max/reduction_indices" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "shape" value { shape { } } } }
node { name: "Max" op: "Max" input: "Tanh" input: "Max/reduction_indices" attr { key: "T" value { type: DT_DOUBLE } } attr { key: "Tidx" value { type: DT_INT32 } } attr { key: "keep_dims" value { b: false } } }
"""
FEEDS = {
    'Max/reduction_indices:0': np.array(0, 'int32'),
    'TensorListStack:0': np.array([], 'float64').reshape([0]),
}
SHAPES = {'Max/reduction_indices:0': (), 'TensorListStack:0': (None,)}
EXPECTED = {
    'Max:0': np.array(-np.inf, 'float64'),
}
graph_def = text_format.Parse(GRAPH, tf.compat.v1.GraphDef())


def body(*args):
    fed = dict(zip(FEEDS, args))
    return tf.import_graph_def(graph_def, fed, list(EXPECTED), name="")


signature = [tf.TensorSpec(SHAPES[name], value.dtype) for name, value in FEEDS.items()]
function = tf.compat.v1.wrap_function(body, signature)
actual = function(*map(tf.constant, FEEDS.values()))
for (name, value), result in zip(EXPECTED.items(), actual):
    print(name, np.asarray(result).tolist())
    if value is not None:
        np.testing.assert_allclose(result, value, rtol=1e-4, err_msg=name, strict=True)
