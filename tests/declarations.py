"""The signatures of TensorFlow's ops that have no class here, for `cfgraph/ops/declarations.txt`.

The file starts with frequent attributes, which `$N` stands for, and an empty line.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.serde.attrs import decode_attr
from cfgraph.ir.shapes import Shape


def as_text(op_defs: Iterable[Any], implemented: Iterable[str]) -> str:
    """A line for each `OpDef` whose name is not implemented, in the order of names."""
    names = set(implemented)
    chosen = sorted((x for x in op_defs if x.name not in names), key=lambda x: str(x.name))
    attrs = Counter(_attr(attr) for op_def in chosen for attr in op_def.attr)
    often = [text for text, count in attrs.most_common() if count > 2 and len(text) > 10]
    number = {text: f"${place}" for place, text in enumerate(often)}
    rows = [*often, "", *(_line(op_def, number) for op_def in chosen)]
    return "".join(f"{row}\n" for row in rows)


def _line(op_def: Any, number: Mapping[str, str]) -> str:
    inputs = ",".join(map(_arg, op_def.input_arg))
    outputs = ",".join(map(_arg, op_def.output_arg))
    signature = f"{op_def.name}{'!' * op_def.is_stateful} {inputs}->{outputs}"
    attrs = ",".join(number.get(text, text) for text in map(_attr, op_def.attr))
    return f"{signature}|{attrs}" if attrs else signature


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
