"""Full types in the readable form: `product[array[tensor[float]]]`."""

from __future__ import annotations

from typing import Final

from cfgraph.ir.serde_types import FullType, encode_type
from cfgraph.ir.text_lex import Line, string_text
from cfgraph.ir.text_parse_scalars import INT64, parse_int

# more than a file can nest
_MAX_DEPTH: Final = 100


def type_text(full: FullType) -> str:
    """A full type as the readable form writes it."""
    text = full.kind
    if isinstance(full.value, str):
        text += string_text(full.value.encode())
    elif full.value is not None:
        text += f"={full.value}"
    return f"{text}[{', '.join(map(type_text, full.args))}]" if full.args else text


def parse_type(line: Line) -> FullType:
    """Read a full type. Raises InvalidInput where there is none."""
    start = line.place
    full = _type(line, 0)
    try:
        encode_type(full)
    except ValueError:
        line.place = start
        raise line.error("a full type such as product[tensor[float]] was expected") from None
    return full


def _type(line: Line, depth: int) -> FullType:
    if depth > _MAX_DEPTH:
        raise line.error(f"no more than {_MAX_DEPTH} levels of nesting were expected")
    kind = line.name("the kind of a full type")
    value: str | int | None = None
    if line.token[:1] == '"':
        value = line.string("the name in a full type")
    elif line.take("="):
        value = parse_int(line, INT64)
    args: list[FullType] = []
    if line.take("["):
        args.append(_type(line, depth + 1))
        while not line.take("]"):
            if not line.take(","):
                raise line.error("',' or ']' was expected")
            args.append(_type(line, depth + 1))
    return FullType(kind, tuple(args), value)
