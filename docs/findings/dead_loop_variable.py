"""TensorFlow (grappler) returns a wrong while_1:1: live in A, dead in B, which returns an empty array, in TensorFlow 2.21.0."""

import os

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

GRAPH = r"""
versions { producer: 2474 min_consumer: 12 }
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { } } } }
node { name: "Const" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "shape" value { shape { } } } }
node { name: "while_1" op: "StatelessWhile" input: "Const" input: "x" input: "Const" attr { key: "T" value { list { type: DT_INT32 type: DT_FLOAT type: DT_INT32 } } } attr { key: "_lower_using_switch_merge" value { b: true } } attr { key: "body" value { func { name: "while_1_body_402" } } } attr { key: "cond" value { func { name: "while_1_cond_401" } } } attr { key: "output_shapes" value { list { shape { } shape { dim { size: 1 } } shape { } } } } attr { key: "parallel_iterations" value { i: 1 } } }
library {
function { signature { name: "while_1_cond_401" input_arg { name: "placeholder" type: DT_INT32 } input_arg { name: "placeholder_2" type: DT_FLOAT } input_arg { name: "while_1_cond_401___redundant_placeholder0" type: DT_INT32 } output_arg { name: "less" type: DT_BOOL } } node_def { name: "Less/y" op: "Const" attr { key: "_output_shapes" value { list { shape { } } } } attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 1 } } } } node_def { name: "Less" op: "Less" input: "placeholder" input: "Less/y:output:0" attr { key: "T" value { type: DT_INT32 } } attr { key: "_output_shapes" value { list { shape { } } } } } ret { key: "less" value: "Less:z:0" } }
function { signature { name: "while_1_body_402" input_arg { name: "placeholder" type: DT_INT32 } input_arg { name: "placeholder_2" type: DT_FLOAT } input_arg { name: "identity_const_0" type: DT_INT32 } output_arg { name: "add_1" type: DT_INT32 } output_arg { name: "cond_identity" type: DT_FLOAT } output_arg { name: "identity_const" type: DT_INT32 } } node_def { name: "Const" op: "Const" attr { key: "_output_shapes" value { list { shape { } } } } attr { key: "dtype" value { type: DT_BOOL } } attr { key: "value" value { tensor { dtype: DT_BOOL tensor_shape { } bool_val: true } } } } node_def { name: "SelectV2" op: "SelectV2" input: "Const:output:0" input: "identity_const_0" input: "placeholder" attr { key: "T" value { type: DT_INT32 } } attr { key: "_output_shapes" value { list { shape { } } } } } node_def { name: "Add" op: "AddV2" input: "identity_const_0" input: "SelectV2:output:0" attr { key: "T" value { type: DT_INT32 } } attr { key: "_output_shapes" value { list { shape { } } } } } node_def { name: "cond" op: "StatelessIf" input: "Const:output:0" input: "placeholder_2" input: "Add:z:0" attr { key: "Tcond" value { type: DT_BOOL } } attr { key: "Tin" value { list { type: DT_FLOAT type: DT_INT32 } } } attr { key: "Tout" value { list { type: DT_FLOAT } } } attr { key: "_lower_using_switch_merge" value { b: true } } attr { key: "_output_shapes" value { list { shape { dim { size: 1 } } } } } attr { key: "_read_only_resource_inputs" value { list { } } } attr { key: "else_branch" value { func { name: "cond_false_434" } } } attr { key: "output_shapes" value { list { shape { dim { size: 1 } } } } } attr { key: "then_branch" value { func { name: "cond_true_433" } } } } node_def { name: "add_1/y" op: "Const" attr { key: "_output_shapes" value { list { shape { } } } } attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 1 } } } } ret { key: "add_1" value: "add_1/y:output:0" } ret { key: "cond_identity" value: "cond:output:0" } ret { key: "identity_const" value: "identity_const_0" } }
function { signature { name: "cond_false_434" input_arg { name: "identity_placeholder_2" type: DT_FLOAT } input_arg { name: "placeholder" type: DT_INT32 } output_arg { name: "identity_2" type: DT_FLOAT } } ret { key: "identity_2" value: "identity_placeholder_2" } }
function { signature { name: "cond_true_433" input_arg { name: "gatherv2_placeholder_2" type: DT_FLOAT } input_arg { name: "reshape_tensorarrayv2read_tensorlistgetitem" type: DT_INT32 } output_arg { name: "identity" type: DT_FLOAT } } node_def { name: "Cast" op: "Cast" input: "reshape_tensorarrayv2read_tensorlistgetitem" attr { key: "DstT" value { type: DT_FLOAT } } attr { key: "SrcT" value { type: DT_INT32 } } attr { key: "Truncate" value { b: false } } attr { key: "_output_shapes" value { list { shape { } } } } } ret { key: "identity" value: "Cast:y:0" } }
}
"""
FEEDS = {
    'Const:0': np.array(0, 'int32'),
    'x:0': np.array(2.0, 'float32'),
}
SHAPES = {'Const:0': (), 'x:0': ()}
EXPECTED = {
    'while_1:1': np.array(0.0, 'float32'),
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
