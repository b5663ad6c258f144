"""Random values of attributes: of all kinds, and with odd numbers, types, shapes, and tensors."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from cfgraph.proto import attr_value_pb2, tensor_pb2

_NUMBERS = (-1, 0, 1, 2, 3, 7, 100, 999, 2**31 - 1, 2**31, 2**40, 2**63 - 1, -(2**63))
_SIZES = (-2, -1, -1, 0, 1, 2, 3, 1000, 2**31, 2**62)
TYPES = (0, 1, 3, 4, 7, 9, 10, 19, 20, 21, 101, 103, 120, 999, 2**31 - 1)
FLOATS = (0.0, -0.0, 1.5, -3.0, 1e30, float("inf"), float("nan"))
_TEXTS = (b"", b"x", b"\xff", b"loc:@x", b"loc:@", b"\0", b"DT_FLOAT", b"(a+)+", b"frame")
_PLACEHOLDERS = ("", "x", "a/b", "^a", "a:0")
_KINDS = ("list", "s", "i", "f", "b", "type", "shape", "tensor", "placeholder", "func", "none")


def set_value(rng: random.Random, attr: Any, functions: Sequence[str], depth: int = 0) -> None:
    """Set an attribute to a value of a random kind; `functions` are names for a function."""
    kind = rng.choice(_KINDS)
    attr.Clear()
    if kind == "list":
        attr.list.SetInParent()
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            item = attr_value_pb2.AttrValue()
            set_value(rng, item, functions, depth + 1)
            name = item.WhichOneof("value")
            if name in {"s", "i", "f", "b", "type"}:
                getattr(attr.list, name).append(getattr(item, name))
            elif name in {"shape", "tensor", "func"}:
                getattr(attr.list, name).add().CopyFrom(getattr(item, name))
    elif kind == "shape":
        attr.shape.SetInParent()
        set_shape(rng, attr.shape)
    elif kind == "tensor":
        attr.tensor.SetInParent()
        set_tensor(rng, attr.tensor)
    elif kind == "func":
        attr.func.name = rng.choice((*functions, "missing", ""))
    elif kind != "none":
        values = {"s": _TEXTS, "i": _NUMBERS, "f": FLOATS, "b": (True, False), "type": TYPES}
        setattr(attr, kind, rng.choice(values.get(kind, _PLACEHOLDERS)))


def set_shape(rng: random.Random, shape: Any) -> None:
    """Set a shape to random sizes, negative and huge ones among them."""
    shape.Clear()
    if rng.random() < 0.2:
        shape.unknown_rank = True
    for _ in range(rng.choice((0, 1, 1, 2, 3, 9))):
        shape.dim.add(size=rng.choice(_SIZES), name=rng.choice(("", "", "n")))


def set_tensor(rng: random.Random, tensor: tensor_pb2.TensorProto) -> None:
    """Change one aspect of a tensor: dtype, shape, or values."""
    match rng.randrange(5):
        case 0:
            tensor.dtype = rng.choice(TYPES)
        case 1:
            set_shape(rng, tensor.tensor_shape)
        case 2:
            length = rng.choice((0, 1, 3, 4, 8, 64))
            tensor.tensor_content = rng.randbytes(length)
        case 3:
            tensor.tensor_content = b""
            tensor.int_val[:] = [rng.randrange(-9, 9) for _ in range(rng.choice((0, 1, 2, 9)))]
        case _:
            fields = ("float_val", "string_val", "bool_val", "int64_val", "half_val")
            name = rng.choice(fields)
            values = {"string_val": rng.choice(_TEXTS), "float_val": rng.choice(FLOATS)}
            getattr(tensor, name).append(values.get(name, 1))
