"""Constants of lists and optionals, as TensorFlow's rewrites write them."""

from __future__ import annotations

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import InvalidInput

FLOAT = "tensors { dtype: DT_FLOAT tensor_shape { dim { size: 2 } } float_val: 1 float_val: 2 }"
# one missing element, at 0; float32; no limit; elements of shape [2]
METADATA = r"\001\000\001\377\377\377\377\377\377\377\377\377\001\022\002\010\002"


def constant(type_name: str, metadata: str, tensors: str = FLOAT) -> str:
    """A Const node of one variant, as text."""
    return f"""
node {{ name: "c" op: "Const" attr {{ key: "dtype" value {{ type: DT_VARIANT }} }}
  attr {{ key: "value" value {{ tensor {{ dtype: DT_VARIANT tensor_shape {{ }} variant_val {{
    type_name: "{type_name}" metadata: "{metadata}" {tensors} }} }} }} }} }}
"""


def reader(op: str, attrs: str = "") -> str:
    """A node that reads the constant, as text."""
    return f'node {{ name: "y" op: "{op}" input: "c" {attrs} }}'


@pytest.mark.parametrize("engine", ["auto", "tokens"])
def test_a_list_has_its_elements_and_its_shape(engine: str) -> None:
    text = constant("tensorflow::TensorList", METADATA)
    length = cfgraph.loads((text + reader("TensorListLength")).encode(), "pbtxt")
    assert cfgraph.Session(length, engine=engine).run(["y:0"]) == [2]
    shape = 'attr { key: "shape_type" value { type: DT_INT32 } }'
    shapes = cfgraph.loads((text + reader("TensorListElementShape", shape)).encode(), "pbtxt")
    (sizes,) = cfgraph.Session(shapes, engine=engine).run(["y:0"])
    np.testing.assert_array_equal(sizes, [2])


@pytest.mark.parametrize(("metadata", "value"), [(r"\001", True), (r"\000", False)])
def test_an_optional_has_its_value(metadata: str, value: bool) -> None:
    text = constant("tensorflow::data::Optional", metadata) + reader("OptionalHasValue")
    assert cfgraph.Session(cfgraph.loads(text.encode(), "pbtxt")).run(["y:0"]) == [value]


@pytest.mark.parametrize("metadata", ["", r"\001", r"\377\377", r"\000\001\001\017"])
def test_invalid_metadata_is_an_error(metadata: str) -> None:
    text = constant("tensorflow::TensorList", metadata) + reader("TensorListLength")
    graph = cfgraph.loads(text.encode(), "pbtxt")
    with pytest.raises((InvalidInput, cfgraph.ExecutionError), match="metadata of a list"):
        cfgraph.Session(graph).run(["y:0"])
