"""TensorFlow (jit) returns a wrong while:0: the value differs, in TensorFlow 2.21.0."""

import os

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
GRAPH = r"""
versions { producer: 2474 min_consumer: 12 }
node { name: "Const" op: "Const" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 0 } } } }
node { name: "while" op: "StatelessWhile" input: "Const" attr { key: "T" value { list { type: DT_INT32 } } } attr { key: "body" value { func { name: "while_body_37" } } } attr { key: "cond" value { func { name: "while_cond_36" } } } attr { key: "output_shapes" value { list { shape { } } } } attr { key: "parallel_iterations" value { i: 10 } } }
library {
function { signature { name: "while_body_37" input_arg { name: "while_placeholder" type: DT_INT32 } output_arg { name: "while_identity_2" type: DT_INT32 } } node_def { name: "while/add/y" op: "Const" attr { key: "_output_shapes" value { list { shape { } } } } attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 2 } } } } node_def { name: "while/add" op: "AddV2" input: "while_placeholder" input: "while/add/y:output:0" attr { key: "T" value { type: DT_INT32 } } attr { key: "_output_shapes" value { list { shape { } } } } } ret { key: "while_identity_2" value: "while/add:z:0" } }
function { signature { name: "while_cond_36" input_arg { name: "while_placeholder" type: DT_INT32 } output_arg { name: "while_identity" type: DT_BOOL } } node_def { name: "while/Less/y" op: "Const" attr { key: "_output_shapes" value { list { shape { } } } } attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 1 } } } } node_def { name: "while/Less" op: "Less" input: "while_placeholder" input: "while/Less/y:output:0" attr { key: "T" value { type: DT_INT32 } } attr { key: "_output_shapes" value { list { shape { } } } } } ret { key: "while_identity" value: "while/Less:z:0" } }
}
"""
FEEDS = {
}
SHAPES = {}
EXPECTED = {
    'while:0': np.array(2, 'int32'),
}
graph_def = text_format.Parse(GRAPH, tf.compat.v1.GraphDef())


def body(*args):
    fed = dict(zip(FEEDS, args))
    return tf.import_graph_def(graph_def, fed, list(EXPECTED), name="")


signature = [tf.TensorSpec(SHAPES[name], value.dtype) for name, value in FEEDS.items()]
function = tf.compat.v1.wrap_function(body, signature)
compiled = tf.function(lambda *args: function(*args), jit_compile=True)
actual = compiled(*map(tf.constant, FEEDS.values()))
for (name, value), result in zip(EXPECTED.items(), actual):
    print(name, np.asarray(result).tolist())
    if value is not None:
        np.testing.assert_allclose(result, value, rtol=1e-4, err_msg=name, strict=True)
