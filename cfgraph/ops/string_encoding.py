"""Strings that hold other data: base64, and the bytes of arrays."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.text_arrays import EachText

_ALPHABET = re.compile(rb"[A-Za-z0-9_-]*")


class EncodeBase64(EachText):
    """Base64 in the alphabet that is safe in addresses, with or without padding."""

    attrs = "pad: bool = false"

    @staticmethod
    def change(node: Node, text: bytes) -> bytes:
        encoded = base64.urlsafe_b64encode(text)
        return encoded if node.attr("pad") else encoded.rstrip(b"=")


class DecodeBase64(EachText):
    """The inverse of EncodeBase64."""

    @staticmethod
    def change(node: Node, text: bytes) -> bytes:
        padding = len(text) - len(text.rstrip(b"="))
        body = text[: len(text) - padding]
        if len(text) % 4 == 1:
            message = "Base64 string length cannot be 1 modulo 4."
            raise OpError(message)
        if (padding and (len(text) % 4 or padding > 2)) or not _ALPHABET.fullmatch(body):
            message = "Invalid character found in base64."
            raise OpError(message)
        try:
            return base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4))
        except binascii.Error as error:
            raise OpError(f"Invalid base64: {error}") from None


def elements(data: bytes, dtype: Any, little: bool) -> Any:
    """The numbers that bytes hold; those of a complex number are swapped one by one."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return np.frombuffer(data, np.uint8) != 0
    width = dtype.itemsize // (2 if dtype.kind == "c" else 1)
    raw = np.frombuffer(data, np.uint8)
    if not little and width > 1:
        raw = raw.reshape((-1, width))[:, ::-1].reshape(-1)
    return np.ascontiguousarray(raw).view(dtype)


class DecodeRaw(Op):
    """The bytes of each string as numbers; all must be of the same length."""

    signature = "bytes: string -> output: out_type"
    attrs = (
        "out_type: {float16, float32, float64, int32, uint16, uint8, int16, int8, int64, "
        "complex64, complex128, bool, bfloat16}, little_endian: bool = true"
    )
    traceable = False
    reads_bits = True

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, little = node.attr("out_type").numpy, node.attr("little_endian")
        name = node.attr("out_type").name

        def decode(texts: Any) -> Any:
            flat = texts.ravel().tolist()
            size = len(flat[0]) if flat else 0
            for place, text in enumerate(flat):
                if len(text) != size:
                    message = (
                        "DecodeRaw requires input strings to all be the same size, "
                        f"but element {place} has size {size} != {len(text)}"
                    )
                    raise OpError(message)
            if size % dtype.itemsize:
                message = (
                    f"Input to DecodeRaw has length {size} that is not a multiple of "
                    f"{dtype.itemsize}, the size of {name}"
                )
                raise OpError(message)
            decoded = elements(b"".join(flat), dtype, little)
            return decoded.reshape((*texts.shape, size // dtype.itemsize))

        return decode

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[0] + vector_shape()]


class DecodePaddedRaw(Op):
    """The bytes of each string, cut or filled with zeros to a length, as numbers."""

    signature = "input_bytes: string, fixed_length: int32 -> output: out_type"
    attrs = (
        "out_type: {float16, float32, float64, int32, uint16, uint8, int16, int8, int64, "
        "bfloat16}, little_endian: bool = true"
    )
    traceable = False
    reads_bits = True
    host_inputs = (1,)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, little = node.attr("out_type").numpy, node.attr("little_endian")

        def decode(texts: Any, length: Any) -> Any:
            size = int(length)
            if size <= 0:
                message = f"fixed_length ({size}) must be greater than zero."
                raise OpError(message)
            if size % dtype.itemsize:
                message = (
                    f"fixed_length ({size}) must be a multiple of the size of out_type "
                    f"({dtype.itemsize})"
                )
                raise OpError(message)
            flat = [text[:size].ljust(size, b"\0") for text in texts.ravel().tolist()]
            decoded = elements(b"".join(flat), dtype, little)
            return decoded.reshape((*texts.shape, size // dtype.itemsize))

        return decode

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        texts, length = context.inputs[0], context.value(1)
        if texts.rank is None:
            return [UNKNOWN_SHAPE]
        width = context.attr("out_type").numpy.itemsize
        return [texts + vector_shape(None if length is None else int(length) // width)]
