"""Dimensions and sizes of images in another data format."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.names import decode_text
from cfgraph.ops.opdef.op import INDEX, OpError, SameShape


def _formats(node: Node) -> tuple[str, str]:
    """The source and the destination format. Raises OpError unless one permutes the other."""
    source, target = (decode_text(node.attr(f"{side}_format")) for side in ("src", "dst"))
    if not (4 <= len(source) <= 5 and len({*source}) == len(source)):
        raise OpError(f"src_format must have 4 or 5 different letters, got {source}")
    if sorted(source) != sorted(target):
        raise OpError(f"dst_format must have the letters of {source}, got {target}")
    return source, target


class DataFormatDimMap(SameShape):
    """The index of each dimension of a data format in another one."""

    signature = "x: T -> y: T"
    attrs = f"T: {INDEX} = int32, src_format: string = 'NHWC', dst_format: string = 'NCHW'"
    formats: Callable[..., Any] = staticmethod(_formats)

    @staticmethod
    def kernel(xp: ModuleType, formats: tuple[str, str], /, x: Any) -> Any:
        source, target = formats
        places = np.array([target.index(letter) for letter in source], x.dtype)
        return xp.asarray(places)[x % len(source)]


class DataFormatVecPermute(DataFormatDimMap):
    """Numbers or pairs per dimension, or per spatial dimension, in the order of another format."""

    @staticmethod
    def kernel(xp: ModuleType, formats: tuple[str, str], /, x: Any) -> Any:
        source, target = formats
        if x.ndim not in (1, 2) or len(x) not in (len(source), len(source) - 2):
            raise OpError(f"x must have a row per dimension of {source}, got shape {list(x.shape)}")
        if x.shape[1:] not in ((), (2,)):
            raise OpError(f"x must have 2 columns, got shape {list(x.shape)}")
        if len(x) < len(source):
            letters = "HW" if len(x) == 2 else "DHW"
            source, target = ("".join(c for c in name if c in letters) for name in formats)
        return x[np.array([source.index(letter) for letter in target])]
