"""TensorFlow (jit) reports InternalError: Propagate: Cannot find body function while_2_body_132_r144_const_0 for While node PartitionedCall/while_2, in TensorFlow 2.21.0."""

import os

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
GRAPH = r"""
versions { producer: 2474 min_consumer: 12 }
node { name: "Const" op: "Const" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 6 } } } }
node { name: "while" op: "StatelessWhile" input: "Const" attr { key: "T" value { list { type: DT_INT32 } } } attr { key: "body" value { func { name: "while_body_70" } } } attr { key: "cond" value { func { name: "while_cond_69" } } } attr { key: "output_shapes" value { list { shape { } } } } attr { key: "parallel_iterations" value { i: 10 } } }
node { name: "while_1" op: "StatelessWhile" input: "while" attr { key: "T" value { list { type: DT_INT32 } } } attr { key: "body" value { func { name: "while_1_body_101" } } } attr { key: "cond" value { func { name: "while_1_cond_100" } } } attr { key: "output_shapes" value { list { shape { } } } } attr { key: "parallel_iterations" value { i: 10 } } }
node { name: "while_2" op: "StatelessWhile" input: "Const" input: "while_1" attr { key: "T" value { list { type: DT_INT32 type: DT_INT32 } } } attr { key: "body" value { func { name: "while_2_body_132" } } } attr { key: "cond" value { func { name: "while_2_cond_131" } } } attr { key: "output_shapes" value { list { shape { dim { size: 3 } } shape { } } } } attr { key: "parallel_iterations" value { i: 10 } } }
node { name: "Identity" op: "Identity" input: "while_2" attr { key: "T" value { type: DT_INT32 } } }
library {
function { signature { name: "while_cond_69" input_arg { name: "while_placeholder_1" type: DT_INT32 } output_arg { name: "while_identity" type: DT_BOOL } } node_def { name: "while/Any" op: "Const" attr { key: "dtype" value { type: DT_BOOL } } attr { key: "value" value { tensor { dtype: DT_BOOL tensor_shape { } bool_val: false } } } } ret { key: "while_identity" value: "while/Any:output:0" } }
function { signature { name: "while_1_cond_100" input_arg { name: "while_1_placeholder_1" type: DT_INT32 } output_arg { name: "while_1_identity" type: DT_BOOL } } node_def { name: "while_1/Any" op: "Const" attr { key: "dtype" value { type: DT_BOOL } } attr { key: "value" value { tensor { dtype: DT_BOOL tensor_shape { } bool_val: false } } } } ret { key: "while_1_identity" value: "while_1/Any:output:0" } }
function { signature { name: "while_body_70" input_arg { name: "while_placeholder_1" type: DT_INT32 } output_arg { name: "while_identity_3" type: DT_INT32 } } ret { key: "while_identity_3" value: "while_placeholder_1" } }
function { signature { name: "while_2_cond_131" input_arg { name: "while_2_placeholder" type: DT_INT32 } input_arg { name: "while_2_placeholder_1" type: DT_INT32 } output_arg { name: "while_2_identity" type: DT_BOOL } } node_def { name: "while_2/Identity" op: "Const" attr { key: "dtype" value { type: DT_BOOL } } attr { key: "value" value { tensor { dtype: DT_BOOL tensor_shape { } bool_val: false } } } } ret { key: "while_2_identity" value: "while_2/Identity:output:0" } }
function { signature { name: "while_1_body_101" input_arg { name: "while_1_placeholder_1" type: DT_INT32 } output_arg { name: "while_1_identity_3" type: DT_INT32 } } ret { key: "while_1_identity_3" value: "while_1_placeholder_1" } }
function { signature { name: "while_2_body_132" input_arg { name: "while_2_placeholder" type: DT_INT32 } input_arg { name: "while_2_placeholder_1" type: DT_INT32 } output_arg { name: "while_2_identity_2" type: DT_INT32 } output_arg { name: "while_2_identity_3" type: DT_INT32 } } ret { key: "while_2_identity_2" value: "while_2_placeholder" } ret { key: "while_2_identity_3" value: "while_2_placeholder_1" } }
}
"""
FEEDS = {
}
SHAPES = {}
EXPECTED = {
    'Identity:0': None,
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
