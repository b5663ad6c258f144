"""Values in another process are equal, and no bytes crash a worker."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cfgraph.errors import CfgraphError, Unsupported
from cfgraph.ir.dtypes import float32
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.optional import OptionalVariant
from cfgraph.ops.families.tensor_list import TensorList
from cfgraph.ops.opdef.resources import Resource
from cfgraph.processes.codec import DecodeError, decode, encode

VALUES = [
    None,
    b"text",
    b"",
    *(dtype(1) for dtype in (np.bool_, np.int8, np.uint64, np.float16, np.complex128)),
    ml_dtypes.bfloat16(2),
    np.arange(6.0).reshape(2, 3).T,
    np.zeros((0, 3), np.int32),
    np.array(7, ml_dtypes.float8_e4m3fn),
    np.array([[b"a", b"bcd"]], object),
    np.arange(3, dtype=np.uint8),
]
CONTAINERS = [
    TensorList(float32, Shape((None, 2)), [None, np.ones(2, np.float32)], 5),
    TensorList(float32, Shape(None), [TensorList(float32, Shape(()), [np.float32(1)])]),
    OptionalVariant(None),
    OptionalVariant((np.int32(1), b"x", np.ones(3))),
]


def sent(value: Any) -> Any:
    head, payload = encode(value)
    return decode(head, np.frombuffer(bytearray(b"".join(payload)), np.uint8))


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_arrives_as_it_was_sent(value: Any) -> None:
    received = sent(value)
    assert type(received) is type(value)
    if isinstance(value, np.ndarray | np.generic):
        assert received.dtype == value.dtype
        assert received.shape == value.shape
        assert received.tolist() == value.tolist()
    else:
        assert received == value


def test_a_tensor_list_arrives_with_its_type_and_reserved_elements() -> None:
    first = sent(CONTAINERS[0])
    assert first.element_dtype is float32
    assert first.element_shape == Shape((None, 2))
    assert first.max_elements == 5
    assert first.all()[0] is None
    assert first.all()[1].tolist() == [1, 1]
    (inner,) = sent(CONTAINERS[1]).all()
    assert inner.all() == [1]


def test_an_optional_arrives_with_its_values() -> None:
    assert sent(CONTAINERS[2]).values is None
    number, text, array = sent(CONTAINERS[3]).values
    assert (number, text, array.tolist()) == (1, b"x", [1, 1, 1])


def test_an_array_of_variants_arrives() -> None:
    array = np.empty(2, object)
    array[:] = CONTAINERS[2:]
    assert [each.values is None for each in sent(array)] == [True, False]


class Handle(Resource):
    __slots__ = ()


def test_a_handle_is_refused() -> None:
    with pytest.raises(Unsupported) as caught:
        encode(Handle())
    assert caught.value.code == "CFG722"


@pytest.mark.parametrize("seed", range(4))
def test_other_bytes_are_refused(seed: int) -> None:
    chance = random.Random(seed)
    refused = 0
    for value in [*VALUES, *CONTAINERS]:
        head, payload = encode(value)
        data = b"".join(payload)
        for _ in range(100):
            changed = bytearray(head)
            for _ in range(chance.randint(1, 4)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            cut = changed[: chance.randint(0, len(changed))] if chance.random() < 0.3 else changed
            rest = data[: chance.randint(0, len(data))] if chance.random() < 0.3 else data
            try:
                decode(bytes(cut), np.frombuffer(bytearray(rest), np.uint8))
            except (DecodeError, CfgraphError):
                refused += 1
    assert refused > 500


def test_nothing_follows_a_value() -> None:
    head, _ = encode(None)
    with pytest.raises(DecodeError, match="longer than its value"):
        decode(head + b"\0", np.empty(0, np.uint8))
