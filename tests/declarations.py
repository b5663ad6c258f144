"""The signatures of TensorFlow's ops that have no class here, for `cfgraph/ops/declarations.txt`.

The file starts with frequent attributes and their keys, and an empty line. A key depends on its
attribute alone, so that an op that is added or dropped changes its own line.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.serde.attrs import decode_attr
from cfgraph.ir.shapes import Shape


class Declaration(NamedTuple):
    """The line of an op: its name, with `!` if it is stateful, its arguments, and attributes."""

    name: str
    arguments: str
    attrs: tuple[str, ...]


def of_tensorflow(op_defs: Iterable[Any]) -> list[Declaration]:
    """The declarations of `OpDef`s."""
    return [
        Declaration(
            f"{op_def.name}{'!' * op_def.is_stateful}",
            f"{','.join(map(_arg, op_def.input_arg))}->{','.join(map(_arg, op_def.output_arg))}",
            tuple(map(_attr, op_def.attr)),
        )
        for op_def in op_defs
    ]


def of_text(text: str) -> list[Declaration]:
    """The declarations of the file."""
    head, _, ops = text.partition("\n\n")
    frequent = dict(line.split(" ", 1) for line in head.splitlines())
    found = []
    for line in ops.splitlines():
        name, _, rest = line.partition(" ")
        arguments, _, attrs = rest.partition("|")
        split = (frequent.get(text, text) for text in split_outside_brackets(attrs))
        found.append(Declaration(name, arguments, tuple(split)))
    return found


def split_outside_brackets(text: str) -> list[str]:
    """Split at commas, except in brackets and quotes."""
    return re.findall(r"(?:\[[^\]]*\]|\{[^}]*\}|\([^)]*\)|'[^']*'|[^,])+", text)


def as_text(declared: Iterable[Declaration], implemented: Iterable[str]) -> str:
    """A line for each op that is not implemented, in the order of names."""
    names = set(implemented)
    chosen = sorted(item for item in declared if item.name.removesuffix("!") not in names)
    attrs = Counter(attr for item in chosen for attr in item.attrs)
    often = sorted(text for text, count in attrs.items() if count > 2 and len(text) > 10)
    keys = {text: f"${zlib.crc32(text.encode()) & 0xFFFF:04x}" for text in often}
    assert len({*keys.values()}) == len(keys), "two attributes have one key"
    rows = [*(f"{keys[text]} {text}" for text in often), ""]
    for name, arguments, found in chosen:
        listed = ",".join(keys.get(text, text) for text in found)
        rows.append(f"{name} {arguments}|{listed}" if listed else f"{name} {arguments}")
    return "".join(f"{row}\n" for row in rows)


def _arg(arg: Any) -> str:
    kind = DType.from_number(arg.type).name if arg.type else arg.type_attr or arg.type_list_attr
    kind = f"Ref({kind})" if arg.is_ref else kind
    return f"{arg.name}:{arg.number_attr}*{kind}" if arg.number_attr else f"{arg.name}:{kind}"


def _attr(attr: Any) -> str:
    kind = attr.type
    if attr.HasField("allowed_values"):
        listed = ",".join(map(_value, decode_attr(attr.allowed_values)))
        kind = f"list({{{listed}}})" if kind.startswith("list(") else f"{{{listed}}}"
    text = f"{attr.name}:{kind}"
    text += f">={attr.minimum}" if attr.has_minimum else ""
    return f"{text}={_default(attr)}" if attr.HasField("default_value") else text


def _default(attr: Any) -> str:
    value = decode_attr(attr.default_value)
    return f"[{','.join(map(_value, value))}]" if isinstance(value, tuple) else _value(value)


def _value(value: Any) -> str:
    """A default as `cfgraph.ir.signature` reads it."""
    if isinstance(value, bytes):
        return f"'{value.decode()}'"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, DType):
        return value.name
    if isinstance(value, TensorValue):
        return "tensor"
    if isinstance(value, Shape):
        dims = value.dims
        sizes = [-1 if dim is None else dim for dim in dims or ()]
        return "?" if dims is None else json.dumps(sizes, separators=(",", ":"))
    return repr(value)
