"""TensorFlow (grappler) returns a wrong while/Exit_1:0: the shape is [0], expected [], in TensorFlow 2.21.0."""

import os

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

GRAPH = r"""
versions { producer: 2474 }
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { } } } }
node { name: "while/Enter_1" op: "Enter" input: "x" attr { key: "T" value { type: DT_FLOAT } } attr { key: "frame_name" value { s: "while/while_context" } } attr { key: "is_constant" value { b: false } } attr { key: "parallel_iterations" value { i: 10 } } }
node { name: "while/Merge_1" op: "Merge" input: "while/Enter_1" input: "while/NextIteration_1" attr { key: "N" value { i: 2 } } attr { key: "T" value { type: DT_FLOAT } } }
node { name: "while/Less/y" op: "Const" input: "^while/Merge_1" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 1 } } } }
node { name: "while/Less" op: "Less" input: "while/Merge_1:1" input: "while/Less/y" attr { key: "T" value { type: DT_INT32 } } }
node { name: "while/Switch_1" op: "Switch" input: "while/Merge_1" input: "while/Less" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "while/Add" op: "AddV2" input: "while/Switch_1:1" input: "while/Switch_1:1" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "while/NextIteration_1" op: "NextIteration" input: "while/Add" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "while/Exit_1" op: "Exit" input: "while/Switch_1" attr { key: "T" value { type: DT_FLOAT } } }
"""
FEEDS = {
    'x:0': np.array(0.0, 'float32'),
}
SHAPES = {'x:0': ()}
EXPECTED = {
    'while/Exit_1:0': np.array(0.0, 'float32'),
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
