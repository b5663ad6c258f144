"""TensorFlow (grappler) reports InvalidArgumentError: Value for attr 'T' of int8 is not in the list of allowed values: bfloat16, half, float, double, int32, int64, complex64, complex128, in TensorFlow 2.21.0."""

import os

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from numpy import inf, nan

GRAPH = r"""
versions { producer: 2474 }
node { name: "w" op: "Placeholder" attr { key: "dtype" value { type: DT_INT8 } } attr { key: "shape" value { shape { dim { size: 3 } } } } }
node { name: "while/Enter_2" op: "Enter" input: "w" attr { key: "T" value { type: DT_INT8 } } attr { key: "frame_name" value { s: "while/while_context" } } attr { key: "is_constant" value { b: false } } attr { key: "parallel_iterations" value { i: 10 } } }
node { name: "while/while/Enter_1" op: "Enter" input: "while/Enter_2" attr { key: "T" value { type: DT_INT8 } } attr { key: "frame_name" value { s: "while/while/while_context" } } attr { key: "is_constant" value { b: false } } attr { key: "parallel_iterations" value { i: 2 } } }
node { name: "while/while/Sub" op: "Sub" input: "while/while/Enter_1" input: "while/while/Enter_1" attr { key: "T" value { type: DT_INT8 } } }
node { name: "while/while/mul" op: "Mul" input: "while/while/Sub" input: "while/while/Sub" attr { key: "T" value { type: DT_INT8 } } }
node { name: "while/while/Exit_1" op: "Exit" input: "while/while/mul" attr { key: "T" value { type: DT_INT8 } } }
node { name: "while/Exit_2" op: "Exit" input: "while/while/Exit_1" attr { key: "T" value { type: DT_INT8 } } }
"""
FEEDS = {
    'w:0': np.array([3, 1, 3], 'int8'),
}
SHAPES = [(3,)]
EXPECTED = {
    'while/Exit_2:0': None,
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
    result = result.astype(object) if result.dtype.kind == "S" else result
    print(name, result.tolist())
    if name in TOLERANCES:
        rtol, atol = TOLERANCES[name]
        np.testing.assert_allclose(result, value, rtol, atol, err_msg=name, strict=True)
    elif value is not None:
        np.testing.assert_array_equal(result, value, err_msg=name, strict=True)
