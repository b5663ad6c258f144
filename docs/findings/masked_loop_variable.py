"""TensorFlow (jit) returns a wrong while:1: the shape is [2], expected [0], in TensorFlow 2.21.0."""

import os

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from numpy import inf, nan

tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
GRAPH = r"""
versions { producer: 2474 min_consumer: 12 }
node { name: "g" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { dim { size: -1 } } } } }
node { name: "Const_1" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "shape" value { shape { } } } }
node { name: "while" op: "StatelessWhile" input: "Const_1" input: "g" attr { key: "T" value { list { type: DT_INT32 type: DT_FLOAT } } } attr { key: "body" value { func { name: "while_body_170" } } } attr { key: "cond" value { func { name: "while_cond_169" } } } attr { key: "output_shapes" value { list { shape { } shape { dim { size: -1 } } } } } attr { key: "parallel_iterations" value { i: 1 } } }
library {
function { signature { name: "while_cond_169" input_arg { name: "placeholder" type: DT_INT32 } input_arg { name: "placeholder_1" type: DT_FLOAT } output_arg { name: "less" type: DT_BOOL } } node_def { name: "Less/y" op: "Const" attr { key: "_output_shapes" value { list { shape { } } } } attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 3 } } } } node_def { name: "Less" op: "Less" input: "placeholder" input: "Less/y:output:0" attr { key: "T" value { type: DT_INT32 } } attr { key: "_output_shapes" value { list { shape { } } } } } ret { key: "less" value: "Less:z:0" } }
function { signature { name: "while_body_170" input_arg { name: "placeholder" type: DT_INT32 } input_arg { name: "placeholder_1" type: DT_FLOAT } output_arg { name: "add" type: DT_INT32 } output_arg { name: "mul" type: DT_FLOAT } } node_def { name: "Greater" op: "Greater" input: "placeholder_1" input: "placeholder_1" attr { key: "T" value { type: DT_FLOAT } } attr { key: "_output_shapes" value { list { shape { dim { size: -1 } } } } } } node_def { name: "boolean_mask/Where" op: "Where" input: "Greater:z:0" attr { key: "T" value { type: DT_BOOL } } attr { key: "_output_shapes" value { list { shape { dim { size: -1 } dim { size: 1 } } } } } } node_def { name: "boolean_mask/Squeeze" op: "Squeeze" input: "boolean_mask/Where:index:0" attr { key: "T" value { type: DT_INT64 } } attr { key: "_output_shapes" value { list { shape { dim { size: -1 } } } } } attr { key: "squeeze_dims" value { list { i: 1 } } } } node_def { name: "boolean_mask/GatherV2/axis" op: "Const" attr { key: "_output_shapes" value { list { shape { } } } } attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 0 } } } } node_def { name: "boolean_mask/GatherV2" op: "GatherV2" input: "placeholder_1" input: "boolean_mask/Squeeze:output:0" input: "boolean_mask/GatherV2/axis:output:0" attr { key: "Taxis" value { type: DT_INT32 } } attr { key: "Tindices" value { type: DT_INT64 } } attr { key: "Tparams" value { type: DT_FLOAT } } attr { key: "_output_shapes" value { list { shape { dim { size: -1 } } } } } attr { key: "batch_dims" value { i: 0 } } } node_def { name: "add_0" op: "AddV2" input: "placeholder" input: "placeholder" attr { key: "T" value { type: DT_INT32 } } } ret { key: "add" value: "add_0:z:0" } ret { key: "mul" value: "boolean_mask/GatherV2:output:0" } }
}
"""
FEEDS = {
    'Const_1:0': np.array(1, 'int32'),
    'g:0': np.array([0.625, 2.0], 'float32'),
}
SHAPES = [(), (None,)]
EXPECTED = {
    'while:0': None,
    'while:1': np.array([], 'float32').reshape([0]),
}
TOLERANCES = {
    'while:1': (0.001, 0.0001),
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
compiled = tf.function(lambda *args: function(*args), jit_compile=True, autograph=False)
actual = compiled(*VALUES)
for (name, value), result in zip(EXPECTED.items(), actual):
    result = np.asarray(result)
    result = result.astype(object) if result.dtype.kind == "S" else result
    print(name, result.tolist())
    if name in TOLERANCES:
        rtol, atol = TOLERANCES[name]
        np.testing.assert_allclose(result, value, rtol, atol, err_msg=name, strict=True)
    elif value is not None:
        np.testing.assert_array_equal(result, value, err_msg=name, strict=True)
