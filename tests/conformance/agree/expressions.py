"""Random expressions of ten types in TensorFlow, whose values stay small."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow

tf: Any = tensorflow.compat.v1

_INTEGERS = ("int8", "uint8", "int32", "int64")


@dataclass(frozen=True)
class Slot:
    """A name with a type; the kind is the rank, `growing` a vector of any length."""

    name: str
    dtype: str
    kind: str


def is_float(dtype: str) -> bool:
    """True for types that have a gradient."""
    return "float" in dtype


_FLOAT_UNARY: tuple[Callable[[Any], Any], ...] = (
    tf.tanh,
    tf.sigmoid,
    tf.sin,
    tf.negative,
    tf.abs,
    tf.nn.relu,
    tf.floor,
    tf.sign,
    tf.stop_gradient,
    lambda x: tf.sqrt(tf.abs(x) + tf.ones_like(x)),
    lambda x: tf.exp(-tf.abs(x)),
    lambda x: tf.square(tf.tanh(x)),
    lambda x: tf.log1p(tf.abs(x)),
    lambda x: tf.clip_by_value(x, tf.constant(-1, x.dtype), tf.constant(2, x.dtype)),
)
_INTEGER_UNARY: tuple[Callable[[Any], Any], ...] = (
    tf.identity,
    tf.bitwise.invert,
    lambda x: tf.math.floormod(x, tf.constant(7, x.dtype)),
    lambda x: tf.math.floordiv(x, tf.constant(3, x.dtype)),
    lambda x: x * x,
)
_BINARY: tuple[Callable[[Any, Any], Any], ...] = (tf.add, tf.subtract, tf.multiply)
_ORDERED: tuple[Callable[[Any, Any], Any], ...] = (tf.maximum, tf.minimum)
_BITS: tuple[Callable[[Any, Any], Any], ...] = (tf.bitwise.bitwise_and, tf.bitwise.bitwise_xor)
_LOGIC: tuple[Callable[[Any, Any], Any], ...] = (tf.logical_and, tf.logical_or, tf.logical_xor)


class ExpressionWriter:
    """Writes random expressions over the slots of a program."""

    def __init__(self, draw: random.Random, slots: Sequence[Slot], length: int) -> None:
        self.random = draw
        self.slots = slots
        self.length = length

    def number(self, dtype: str) -> Any:
        """A random number of a type."""
        if dtype == "bool":
            return self.random.random() < 0.5
        if dtype == "complex64":
            return complex(self.number("float32"), self.number("float32"))
        if is_float(dtype):
            return self.random.choice((-1.5, -0.75, 0.0, 0.3, 0.625, 1.1, 2.0))
        return self.random.randint(0 if dtype == "uint8" else -3, 5)

    def constant(self, slot: Slot) -> Any:
        """A scalar constant of the type of a slot."""
        return tf.constant(self.number(slot.dtype), slot.dtype)

    def test(self, env: Mapping[Slot, Any]) -> Any:
        """A boolean scalar."""
        forms = ["integers", "integers", "boolean", "size", "float"]
        form = self.random.choice(forms)
        if form == "boolean":
            return self.value(env, Slot("", "bool", "scalar"))
        if form == "size":
            tensor = env[self.random.choice([slot for slot in self.slots if slot in env])]
            return tf.size(tensor) > self.random.randint(0, 3)
        if form == "float" and self.slots[1].dtype in ("float32", "float64"):
            # no value of these programs is at this bound but for rounding
            bound = tf.constant(self.random.choice((-0.4142, 0.1618, 0.7321)), self.slots[1].dtype)
            return self.value(env, self.slots[1]) > bound
        integer = Slot("", "int32", "scalar")
        compare = self.random.choice((tf.less, tf.greater_equal, tf.equal, tf.not_equal))
        return compare(self.value(env, integer), self.constant(integer))

    def value(self, env: Mapping[Slot, Any], slot: Slot, depth: int = 2) -> Any:
        """A tensor of the type of a slot."""
        readable = [each for each in env if each.dtype == slot.dtype and each.kind == slot.kind]
        if not readable:
            return self.converted(env, slot)
        read = env[self.random.choice(readable)]
        forms = ["read", "unary", "binary", "binary", "converted", "where", "shaped"]
        form = self.random.choice(forms) if depth else "read"
        if form == "binary":
            other = self.value(env, slot, depth - 1)
            if self.random.random() < 0.4 or slot.kind == "growing":
                other = self.constant(slot)
            return self.combined(read, other, slot.dtype)
        if form == "unary":
            return self.unary(self.value(env, slot, depth - 1), slot.dtype)
        if form == "where" and slot.kind != "growing":
            return tf.where_v2(self.flag(env), read, self.value(env, slot, depth - 1))
        if form == "shaped":
            return self.shaped(env, slot, read)
        if form == "converted" and slot.kind != "growing":
            return self.converted(env, slot)
        return tf.identity(read)

    def flag(self, env: Mapping[Slot, Any]) -> Any:
        flags = [
            tensor for slot, tensor in env.items() if slot.dtype == "bool" and not tensor.shape
        ]
        scalars = [flag for flag in flags if flag.shape.rank == 0]
        return self.random.choice(scalars) if scalars else tf.constant(True)

    def unary(self, tensor: Any, dtype: str) -> Any:
        """A function of a tensor."""
        if dtype == "bool":
            return tf.logical_not(tensor)
        if dtype == "complex64":
            return self.random.choice((tf.conj, tf.negative))(tensor)
        return self.random.choice(_FLOAT_UNARY if is_float(dtype) else _INTEGER_UNARY)(tensor)

    def combined(self, left: Any, right: Any, dtype: str) -> Any:
        """An operator between tensors; products of numbers that are not integers stay small."""
        if dtype == "bool":
            return self.random.choice(_LOGIC)(left, right)
        operators = _BINARY if dtype == "complex64" else _BINARY + _ORDERED
        if dtype in _INTEGERS:
            operators += _BITS
        operator = self.random.choice(operators)
        if operator is tf.multiply and is_float(dtype):
            right = tf.tanh(right)
        return operator(left, right)

    def converted(self, env: Mapping[Slot, Any], slot: Slot) -> Any:
        """A value made of a slot of another type or rank."""
        sources = [each for each in env if each.name != "order"]
        source = self.random.choice(sources)
        tensor = env[source]
        if source.kind != slot.kind:
            tensor = self.reduced(tf.reshape(tensor, [-1]), source.dtype)
        tensor = self.cast(tensor, source.dtype, slot.dtype)
        if slot.kind in ("scalar", source.kind):
            return tensor
        like = next((env[each] for each in env if each.kind == slot.kind), None)
        if like is None:
            return tf.fill(self.dims(slot), tensor)
        return tf.fill(tf.shape(like), tensor)

    def dims(self, slot: Slot) -> list[int]:
        """The dimensions of a slot's values at the start."""
        vector = [self.length]
        dims = {"scalar": [], "vector": vector, "matrix": [2, *vector], "growing": [2]}
        return dims[slot.kind]

    def cast(self, tensor: Any, source: str, target: str) -> Any:
        """A conversion; what becomes an integer is small and is no half."""
        if source == target:
            return tf.identity(tensor)
        if source == "complex64":
            tensor, source = tf.real(tensor), "float32"
        if target in _INTEGERS and source not in ("bool", *_INTEGERS):
            low, high = (tf.constant(n, tensor.dtype) for n in (-20, 20))
            tensor = tf.where_v2(tf.math.is_nan(tensor), low, tensor)
            tensor = tf.clip_by_value(tensor * 4 + tf.constant(0.3, tensor.dtype), low, high)
            if target == "uint8":
                tensor = tf.abs(tensor)
        if target == "bool":
            return tf.not_equal(tensor, tf.constant(0, tensor.dtype))
        return tf.cast(tensor, target)

    def reduced(self, rows: Any, dtype: str) -> Any:
        """A reduction over the first dimension."""
        if dtype == "bool":
            return self.random.choice((tf.reduce_any, tf.reduce_all))(rows, axis=0)
        if dtype == "complex64":
            return tf.reduce_sum(rows, axis=0)
        reductions = (tf.reduce_sum, tf.reduce_max, tf.reduce_min, tf.reduce_prod)
        if is_float(dtype):
            reductions += (tf.reduce_mean,)
            rows = tf.tanh(rows)
        return self.random.choice(reductions)(rows, axis=0)

    def shaped(self, env: Mapping[Slot, Any], slot: Slot, tensor: Any) -> Any:
        """An op that moves elements."""
        if slot.kind == "scalar":
            return tf.squeeze(tf.expand_dims(tensor, 0), 0)
        if slot.kind == "growing":
            return self.grown(env, slot, tensor)
        axis = self.random.randrange(1 if slot.kind == "vector" else 2)
        forms = ["reverse", "roll", "gather", "concat", "slice", "cumsum", "reshape", "tile", "pad"]
        forms += ["product"] if is_float(slot.dtype) else ["sort"]
        form = self.random.choice(forms)
        if form == "cumsum" and (is_float(slot.dtype) or slot.dtype in ("int32", "int64")):
            return tf.tanh(tf.cumsum(tensor, axis)) if is_float(slot.dtype) else tensor
        if form in ("reshape", "tile", "pad", "product", "sort"):
            return self.rearranged(form, tensor, axis, slot)
        if form == "roll":
            return tf.roll(tensor, self.random.randint(-2, 2), axis)
        if form == "gather":
            size = tf.shape(tensor)[axis]
            return tf.gather(tensor, tf.range(size)[::-1], axis=axis)
        if form == "concat":
            size = tf.shape(tensor)[axis]
            both = tf.concat([tensor, tf.identity(tensor)], axis)
            return tf.split(both, [size, size], axis)[self.random.randrange(2)]
        if form == "slice":
            rest = tensor[1:] if axis == 0 else tensor[:, 1:]
            first = tensor[:1] if axis == 0 else tensor[:, :1]
            return tf.concat([rest, first], axis)
        return tf.reverse(tensor, [axis])

    def rearranged(self, form: str, tensor: Any, axis: int, slot: Slot) -> Any:
        """Ops of which the parameters are computed from the shape."""
        shape = tf.shape(tensor)
        if form == "reshape":
            flat = tf.reshape(tensor, [-1])
            return tf.reshape(flat[::-1], shape)
        if form == "tile":
            tiled = tf.tile(tensor, [2] if slot.kind == "vector" else [1, 2])
            return tf.slice(tiled, tf.zeros_like(shape), shape)
        if form == "pad":
            padded = tf.pad(tensor, [[1, 1]] * (1 if slot.kind == "vector" else 2))
            return padded[1:-1] if slot.kind == "vector" else padded[1:-1, 1:-1]
        if form == "product":
            rows = tf.reshape(tensor, [-1, 1])
            mixed = tf.matmul(rows, rows, transpose_b=True) if axis == 0 else rows * rows
            return tf.tanh(tf.reshape(tf.reduce_mean(mixed, axis=1), shape))
        if slot.dtype in ("int32", "int64"):
            return tf.sort(tensor, axis=-1)
        return tf.transpose(tf.expand_dims(tensor, 0), [*range(1, 1 + tensor.shape.rank), 0])[
            ..., 0
        ]

    def grown(self, env: Mapping[Slot, Any], slot: Slot, tensor: Any) -> Any:
        """A vector of another length."""
        form = self.random.choice(("push", "push", "pop", "filter"))
        if form == "push":
            item = self.value(env, Slot("", slot.dtype, "scalar"), 1)
            return tf.concat([tensor, tf.reshape(item, [1])], 0)
        if form == "pop":
            return tensor[1:] if self.random.random() < 0.5 else tensor[:-1]
        return tf.boolean_mask(tensor, tensor > tf.constant(0.1416, tensor.dtype))
