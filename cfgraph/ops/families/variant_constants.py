"""Constants of lists and optionals, which TensorFlow's rewrites leave where it computed them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from cfgraph.ir.serde.variant import EncodedVariant, encoded_variant, list_metadata
from cfgraph.ops.families.optional import OptionalVariant
from cfgraph.ops.families.tensor_list import TensorList
from cfgraph.ops.opdef.variant_math import EMPTY_VARIANT


def variants_of_constant(array: Any) -> Any:
    """The variants of an array of encoded ones; a scalar for no dimensions.

    Raises InvalidInput for a list with invalid metadata.
    """
    result = np.empty(array.shape, object)
    for index in np.ndindex(array.shape):
        result[index] = _decoded(array[index])
    return result if result.ndim else result[()]


def _decoded(message: Any) -> Any:
    if not message:
        return EMPTY_VARIANT
    encoded = encoded_variant(message)
    decode = _DECODERS.get(encoded.type_name)
    return message if decode is None else decode(encoded)


def _list(encoded: EncodedVariant) -> TensorList:
    metadata = list_metadata(encoded.metadata)
    elements = [_element(tensor) for tensor in encoded.tensors]
    for index in sorted(set(metadata.missing)):
        elements.insert(index, None)
    return TensorList(metadata.dtype, metadata.shape, elements, metadata.max_elements)


def _optional(encoded: EncodedVariant) -> OptionalVariant:
    if not any(encoded.metadata):
        return OptionalVariant(None)
    return OptionalVariant(tuple(_element(tensor) for tensor in encoded.tensors))


def _element(tensor: Any) -> Any:
    """A tensor as kernels return it; nested variants are decoded, too."""
    if tensor is None:
        return EMPTY_VARIANT
    if tensor.dtype == object and tensor.size and hasattr(tensor.flat[0], "type_name"):
        return variants_of_constant(tensor)
    return tensor if tensor.ndim or tensor.dtype == object else tensor[()]


_DECODERS: Final[dict[str, Callable[[EncodedVariant], Any]]] = {
    "tensorflow::TensorList": _list,
    "tensorflow::data::Optional": _optional,
}
