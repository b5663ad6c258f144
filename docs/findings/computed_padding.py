"""TensorFlow (autojit) reports InvalidArgumentError: Input 1 to node `Pad_1` with op Pad must be a compile-time constant."""

import os

os.environ["TF_XLA_FLAGS"] = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"
import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from numpy import inf, nan

GRAPH = r"""
versions { producer: 2474 }
node { name: "ones_like" op: "Const" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { dim { size: 1 } } int_val: 1 } } } }
node { name: "Size" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "shape" value { shape { } } } }
node { name: "UnsortedSegmentSum" op: "UnsortedSegmentSum" input: "ones_like" input: "ones_like" input: "Size" attr { key: "T" value { type: DT_INT32 } } attr { key: "Tindices" value { type: DT_INT32 } } attr { key: "Tnumsegments" value { type: DT_INT32 } } }
node { name: "Max" op: "Max" input: "UnsortedSegmentSum" input: "Pad_1/paddings/0/0" attr { key: "T" value { type: DT_INT32 } } attr { key: "Tidx" value { type: DT_INT32 } } attr { key: "keep_dims" value { b: false } } }
node { name: "boolean_mask/GatherV2" op: "Placeholder" attr { key: "dtype" value { type: DT_DOUBLE } } attr { key: "shape" value { shape { dim { size: -1 } } } } }
node { name: "Pad_1/paddings/0/0" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "shape" value { shape { } } } }
node { name: "Pad_1/paddings/0" op: "Pack" input: "Pad_1/paddings/0/0" input: "Max" attr { key: "N" value { i: 2 } } attr { key: "T" value { type: DT_INT32 } } attr { key: "axis" value { i: 0 } } }
node { name: "Pad_1/paddings" op: "Pack" input: "Pad_1/paddings/0" attr { key: "N" value { i: 1 } } attr { key: "T" value { type: DT_INT32 } } attr { key: "axis" value { i: 0 } } }
node { name: "Pad_1" op: "Pad" input: "boolean_mask/GatherV2" input: "Pad_1/paddings" attr { key: "T" value { type: DT_DOUBLE } } attr { key: "Tpaddings" value { type: DT_INT32 } } }
"""
FEEDS = {
    'Pad_1/paddings/0/0:0': np.array(0, 'int32'),
    'Size:0': np.array(3, 'int32'),
    'boolean_mask/GatherV2:0': np.array([1.0, 2.0, 3.0, 4.0, 5.0], 'float64'),
}
SHAPES = [(), (), (None,)]
EXPECTED = {
    'Pad_1:0': None,
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
