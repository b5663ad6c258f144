"""Maps from tensors to tensors, as variants that no op changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape
from cfgraph.ops.kernels.variant_math import add_values, stack_values
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext


class MapKey(NamedTuple):
    """A key as TensorFlow compares it: by type, shape, and bytes."""

    dtype: DType
    shape: tuple[int, ...]
    content: bytes | tuple[bytes, ...]


class MapEntry(NamedTuple):
    """A key, its value, and the type of the value."""

    key: Any
    value: Any
    value_dtype: DType


class TensorMap:
    """A variant element that contains a map from tensors to tensors."""

    __slots__ = ("entries",)
    shape = ()
    ndim = 0

    def __init__(self, entries: Mapping[MapKey, MapEntry]) -> None:
        self.entries = entries

    def zeros_like(self) -> TensorMap:
        """An empty map."""
        return TensorMap({})

    def add(self, addend: Any) -> TensorMap:
        """The entries of both maps; values of equal keys are added."""
        entries = dict(self.entries)
        for name, entry in map_of(addend).entries.items():
            own = entries.get(name)
            total = entry.value if own is None else add_values(own.value, entry.value)
            entries[name] = entry._replace(value=total)
        return TensorMap(entries)

    def __repr__(self) -> str:
        return f"<TensorMap of {len(self.entries)} keys>"


def map_of(handle: Any) -> TensorMap:
    """The map inside a variant. Raises OpError for any other value."""
    if handle.ndim:
        raise OpError(f"Input map must be a scalar. Saw: {list(handle.shape)}")
    if isinstance(handle, np.ndarray):
        handle = handle[()]
    if not isinstance(handle, TensorMap):
        raise OpError(f"Input handle is not a map. Saw: {handle!r}")
    return handle


def _map_key(dtype: DType, key: Any) -> MapKey:
    if not dtype.is_object:
        return MapKey(dtype, key.shape, key.tobytes())
    if dtype.kind != "string":
        raise OpError(f"a tensor of type {dtype} cannot be a key of a map")
    return MapKey(dtype, key.shape, tuple(key.ravel()))


def _existing_key(entries: Mapping[MapKey, MapEntry], verb: str, dtype: DType, key: Any) -> MapKey:
    name = _map_key(dtype, key)
    if name not in entries:
        raise OpError(f'Trying to {verb} non-existent key. Could not find key "{key}".')
    return name


class TensorMapOp(Op, abstract=True):
    """Op on maps of tensors. Outputs are scalars unless overridden."""

    placement = HostPlacement(host_only=True)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE]


class EmptyTensorMap(TensorMapOp):
    """A map without keys."""

    signature = "-> handle: variant"
    kernel = staticmethod(lambda xp: TensorMap({}))


class TensorMapSize(TensorMapOp):
    """The number of keys of a map."""

    signature = "input_handle: variant -> size: int32"
    kernel = staticmethod(lambda xp, handle: np.int32(len(map_of(handle).entries)))


class TensorMapHasKey(TensorMapOp):
    """True if a map has a key."""

    signature = "input_handle: variant, key: key_dtype -> has_key: bool"
    attrs = "key_dtype: type"

    @staticmethod
    def kernel(xp: ModuleType, key_dtype: DType, /, handle: Any, key: Any) -> Any:
        return np.bool_(_map_key(key_dtype, key) in map_of(handle).entries)


class TensorMapLookup(TensorMapOp):
    """The value of a key. Fails without the key."""

    signature = "input_handle: variant, key: key_dtype -> value: value_dtype"
    attrs = "key_dtype: type, value_dtype: type"

    @staticmethod
    def kernel(
        xp: ModuleType, key_dtype: DType, value_dtype: DType, /, handle: Any, key: Any
    ) -> Any:
        entries = map_of(handle).entries
        entry = entries[_existing_key(entries, "lookup", key_dtype, key)]
        if entry.value_dtype is not value_dtype:
            raise OpError(f"the value has type {entry.value_dtype}, expected {value_dtype}")
        return entry.value

    shape = staticmethod(lambda context: [UNKNOWN_SHAPE])

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return g.TensorMapInsert(g.EmptyTensorMap(), node.inputs[1], dz), None


class TensorMapInsert(TensorMapOp):
    """A map with the value of one key added or replaced."""

    signature = (
        "input_handle: variant, key: key_dtype, value: value_dtype -> output_handle: variant"
    )
    attrs = "key_dtype: type, value_dtype: type"

    @staticmethod
    def kernel(
        xp: ModuleType, key_dtype: DType, value_dtype: DType, /, handle: Any, key: Any, value: Any
    ) -> Any:
        entry = MapEntry(key, value, value_dtype)
        return TensorMap({**map_of(handle).entries, _map_key(key_dtype, key): entry})

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dmap: Output) -> InputGradients:
        _, key, value = node.inputs
        zero = g.TensorMapInsert(g.EmptyTensorMap(), key, g.zeros_like(value))
        filled = g.AddN([zero, dmap])  # the gradient lacks keys that are not looked up
        return (
            lambda: g.TensorMapErase(filled, key, value_dtype=value.dtype),
            None,
            lambda: g.TensorMapLookup(filled, key, value_dtype=value.dtype),
        )


class TensorMapErase(TensorMapOp):
    """A map without one of its keys. Fails without the key."""

    signature = "input_handle: variant, key: key_dtype -> output_handle: variant"
    attrs = "key_dtype: type, value_dtype: type"

    @staticmethod
    def kernel(xp: ModuleType, key_dtype: DType, /, handle: Any, key: Any) -> Any:
        entries = dict(map_of(handle).entries)
        del entries[_existing_key(entries, "erase", key_dtype, key)]
        return TensorMap(entries)

    gradient = staticmethod(lambda g, node, dmap: (dmap, None))


class TensorMapStackKeys(TensorMapOp):
    """The keys of a map, which must have one shape, stacked in the order of insertion."""

    signature = "input_handle: variant -> keys: key_dtype"
    attrs = "key_dtype: type"

    @staticmethod
    def kernel(xp: ModuleType, key_dtype: DType, /, handle: Any) -> Any:
        entries = map_of(handle).entries
        if not entries:
            raise OpError("TensorMapStackKeys cannot be called on empty map.")
        if {name.dtype for name in entries} != {key_dtype}:
            raise OpError("Key does not match requested dtype.")
        shape, *others = {name.shape for name in entries}
        if others:
            raise OpError("Keys must all have the same shape.")
        return stack_values(xp, key_dtype, [entry.key for entry in entries.values()], shape)

    shape = staticmethod(lambda context: [UNKNOWN_SHAPE])
