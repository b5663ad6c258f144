"""TensorFlow (jit) returns a wrong TensorArrayV2Stack/TensorListStack:0: the shape is [1], expected [2], in TensorFlow 2.21.0."""

import os

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
GRAPH = r"""
versions { producer: 2474 min_consumer: 12 }
node { name: "TensorArrayV2" op: "TensorListReserve" input: "TensorArrayV2Stack/Const" input: "Const" attr { key: "element_dtype" value { type: DT_BOOL } } attr { key: "shape_type" value { type: DT_INT32 } } }
node { name: "Const" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "shape" value { shape { } } } }
node { name: "while" op: "StatelessWhile" input: "Const" input: "TensorArrayV2" attr { key: "T" value { list { type: DT_INT32 type: DT_VARIANT } } } attr { key: "body" value { func { name: "while_body_48" } } } attr { key: "cond" value { func { name: "while_cond_47" } } } attr { key: "output_shapes" value { list { shape { } shape { } } } } attr { key: "parallel_iterations" value { i: 10 } } }
node { name: "TensorArrayV2Stack/Const" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "shape" value { shape { dim { } } } } }
node { name: "TensorArrayV2Stack/TensorListStack" op: "TensorListStack" input: "while:1" input: "TensorArrayV2Stack/Const" attr { key: "element_dtype" value { type: DT_BOOL } } attr { key: "num_elements" value { i: -1 } } }
library {
function { signature { name: "while_body_48" input_arg { name: "while_placeholder" type: DT_INT32 } input_arg { name: "while_placeholder_1" type: DT_VARIANT } output_arg { name: "while_identity_2" type: DT_INT32 } output_arg { name: "while_identity_3" type: DT_VARIANT } } node_def { name: "while/add" op: "AddV2" input: "while_placeholder" input: "while_placeholder" attr { key: "T" value { type: DT_INT32 } } attr { key: "_output_shapes" value { list { shape { } } } } } node_def { name: "while/TensorArrayV2Write/value" op: "Const" attr { key: "_output_shapes" value { list { shape { } } } } attr { key: "dtype" value { type: DT_BOOL } } attr { key: "value" value { tensor { dtype: DT_BOOL tensor_shape { } bool_val: true } } } } node_def { name: "while/TensorArrayV2Write/TensorListSetItem" op: "TensorListSetItem" input: "while_placeholder_1" input: "while_placeholder" input: "while/TensorArrayV2Write/value:output:0" attr { key: "_output_shapes" value { list { shape { } } } } attr { key: "element_dtype" value { type: DT_BOOL } } attr { key: "resize_if_index_out_of_bounds" value { b: true } } experimental_type { type_id: TFT_PRODUCT args { type_id: TFT_ARRAY args { type_id: TFT_TENSOR args { type_id: TFT_BOOL } } } } } ret { key: "while_identity_2" value: "while/add:z:0" } ret { key: "while_identity_3" value: "while/TensorArrayV2Write/TensorListSetItem:output_handle:0" } }
function { signature { name: "while_cond_47" input_arg { name: "while_placeholder" type: DT_INT32 } input_arg { name: "while_placeholder_1" type: DT_VARIANT } output_arg { name: "while_identity" type: DT_BOOL } } node_def { name: "while/Less/y" op: "Const" attr { key: "_output_shapes" value { list { shape { } } } } attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 2 } } } } node_def { name: "while/Less" op: "Less" input: "while_placeholder" input: "while/Less/y:output:0" attr { key: "T" value { type: DT_INT32 } } attr { key: "_output_shapes" value { list { shape { } } } } } ret { key: "while_identity" value: "while/Less:z:0" } }
}
"""
FEEDS = {
    'Const:0': np.array(1, 'int32'),
    'TensorArrayV2Stack/Const:0': np.array([], 'int32').reshape([0]),
}
SHAPES = {'Const:0': (), 'TensorArrayV2Stack/Const:0': (0,)}
EXPECTED = {
    'TensorArrayV2Stack/TensorListStack:0': np.array([False, True], 'bool'),
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
