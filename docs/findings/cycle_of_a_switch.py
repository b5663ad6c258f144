"""TensorFlow (grappler) is ended by SIGSEGV in about half of the calls, in TensorFlow 2.21.0."""

import os

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from numpy import inf, nan

GRAPH = r"""
versions { producer: 2474 }
node { name: "p" op: "Placeholder" attr { key: "dtype" value { type: DT_BOOL } } attr { key: "shape" value { shape { } } } }
node { name: "SelectV2" op: "SelectV2" input: "cond/Const_4" input: "p" input: "p" attr { key: "T" value { type: DT_BOOL } } }
node { name: "cond/Identity_2" op: "Identity" input: "cond/Identity_4/Switch:1" attr { key: "T" value { type: DT_BOOL } } }
node { name: "cond/Identity_4/Switch" op: "Switch" input: "p" input: "SelectV2" attr { key: "T" value { type: DT_BOOL } } }
node { name: "cond/Const_4" op: "Const" attr { key: "dtype" value { type: DT_BOOL } } attr { key: "value" value { tensor { dtype: DT_BOOL tensor_shape { } bool_val: false } } } }
node { name: "cond/LogicalAnd" op: "LogicalAnd" input: "cond/Identity_4/Switch" input: "cond/Const_4" }
"""
FEEDS = {
    'p:0': np.array(False, 'bool'),
}
SHAPES = [()]
EXPECTED = {
    'cond/Identity_2:0': None,
    'cond/LogicalAnd:0': None,
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
for _ in range(20):  # Grappler rewrites each of them
    function = tf.compat.v1.wrap_function(body, signature)
    actual = function(*VALUES)
for (name, value), result in zip(EXPECTED.items(), actual):
    result = np.asarray(result)
    result = result.astype(object) if result.dtype.kind == "S" else result
    print(name, result.tolist())
    if name in TOLERANCES:
        rtol, atol = TOLERANCES[name]
        np.testing.assert_allclose(result, value, rtol, atol, err_msg=name, strict=True)
    elif value is not None:
        np.testing.assert_array_equal(result, value, err_msg=name, strict=True)

