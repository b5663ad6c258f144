"""TensorFlow (autojit) returns a wrong while:1: live in A, dead in B, which returns an empty array, in TensorFlow 2.21.0."""

import os

os.environ["TF_XLA_FLAGS"] = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"
import numpy as np
import tensorflow as tf
from google.protobuf import text_format

GRAPH = r"""
versions { producer: 2474 min_consumer: 12 }
node { name: "Reshape" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { dim { size: 4 } dim { size: 1 } } } } }
node { name: "while/loop_counter" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "shape" value { shape { } } } }
node { name: "while" op: "StatelessWhile" input: "while/loop_counter" input: "Reshape" attr { key: "T" value { list { type: DT_INT32 type: DT_FLOAT } } } attr { key: "_lower_using_switch_merge" value { b: true } } attr { key: "body" value { func { name: "while_body_8" } } } attr { key: "cond" value { func { name: "while_cond_7" } } } attr { key: "output_shapes" value { list { shape { } shape { dim { size: 4 } dim { size: 1 } } } } } attr { key: "parallel_iterations" value { i: 10 } } }
library {
function { signature { name: "while_body_8" input_arg { name: "while_placeholder" type: DT_INT32 } input_arg { name: "while_placeholder_1" type: DT_FLOAT } output_arg { name: "while_identity_2" type: DT_INT32 } output_arg { name: "while_identity_3" type: DT_FLOAT } } node_def { name: "while/add" op: "AddV2" input: "while_placeholder" input: "while_placeholder" attr { key: "T" value { type: DT_INT32 } } attr { key: "_output_shapes" value { list { shape { } } } } } node_def { name: "while/Reshape/shape" op: "Const" attr { key: "_output_shapes" value { list { shape { dim { size: 2 } } } } } attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { dim { size: 2 } } tensor_content: "\377\377\377\377\001\000\000\000" } } } } node_def { name: "while/Reshape" op: "Reshape" input: "while_placeholder_1" input: "while/Reshape/shape:output:0" attr { key: "T" value { type: DT_FLOAT } } attr { key: "Tshape" value { type: DT_INT32 } } attr { key: "_output_shapes" value { list { shape { dim { size: 4 } dim { size: 1 } } } } } } node_def { name: "while/add_1" op: "AddV2" input: "while/Reshape:output:0" input: "while_placeholder_1" attr { key: "T" value { type: DT_FLOAT } } attr { key: "_output_shapes" value { list { shape { dim { size: 4 } dim { size: 1 } } } } } } ret { key: "while_identity_2" value: "while/add:z:0" } ret { key: "while_identity_3" value: "while/add_1:z:0" } }
function { signature { name: "while_cond_7" input_arg { name: "while_placeholder" type: DT_INT32 } input_arg { name: "while_placeholder_1" type: DT_FLOAT } output_arg { name: "while_identity" type: DT_BOOL } } node_def { name: "while/Less/y" op: "Const" attr { key: "_output_shapes" value { list { shape { } } } } attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 5 } } } } node_def { name: "while/Less" op: "Less" input: "while_placeholder" input: "while/Less/y:output:0" attr { key: "T" value { type: DT_INT32 } } attr { key: "_output_shapes" value { list { shape { } } } } } ret { key: "while_identity" value: "while/Less:z:0" } }
}
"""
FEEDS = {
    'while/loop_counter:0': np.array(3, 'int32'),
    'Reshape:0': np.array([[4.0], [5.0], [6.0], [7.0]], 'float32'),
}
SHAPES = {'while/loop_counter:0': (), 'Reshape:0': (4, 1)}
EXPECTED = {
    'while:1': np.array([[8.0], [10.0], [12.0], [14.0]], 'float32'),
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
