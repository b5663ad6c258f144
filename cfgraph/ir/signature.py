"""Op signatures: named inputs, outputs, and attributes, and the types derived from them.

A signature is written `x: T, y: N*T, r: Ref(T), list: Tin -> z: T, n: int32`; attributes are
written `N: int >= 1, T: {float32, float64} = float32, Tin: list(type), shape: shape = ?`.
A type or count that is used but not declared is an attribute `type` or `int >= 1`. A kernel has
the argument of `shape: host int64` in host memory; that of `axis: const int32` is also known when
the node is compiled.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, takewhile
from typing import Any, Final, Literal

from cfgraph.ir.dtypes import DType
from cfgraph.ir.nested_text import parse_json
from cfgraph.ir.shapes import Shape

# bound on the tensors of one argument, so that a corrupt count does not exhaust the memory
MAX_COUNT: Final = 1 << 20
Memory = Literal["", "host", "const"]


@dataclass(frozen=True, slots=True)
class ArgDef:
    """One argument, of type `dtype` or of the type in `type_attr`; `count` names a count
    attribute. `memory` is empty for an argument in the memory of the device.
    """

    name: str
    dtype: DType | None
    type_attr: str | None
    count: str | None = None
    is_ref: bool = False
    memory: Memory = ""


@dataclass(frozen=True, slots=True)
class AttrDef:
    """One attribute: its kind (`type`, `int`, `list(shape)`, …), default and bounds."""

    name: str
    kind: str
    default: Any = None
    has_default: bool = False
    minimum: int | None = None
    allowed: tuple[Any, ...] | None = None


class Signature:
    """A parsed signature."""

    def __init__(self, text: str, attrs: str = "") -> None:
        inputs, _, outputs = text.partition("->")
        self.attrs: dict[str, AttrDef] = {
            a.name: a for a in map(_parse_attr, _split_top_level(attrs))
        }
        self.inputs = tuple(self._arg(piece) for piece in _split_top_level(inputs))
        self.outputs = tuple(self._arg(piece) for piece in _split_top_level(outputs))
        for arg in (*self.inputs, *self.outputs):
            self._declare(arg)

    @classmethod
    def from_args(
        cls, inputs: tuple[ArgDef, ...], outputs: tuple[ArgDef, ...], attrs: Mapping[str, AttrDef]
    ) -> Signature:
        """A signature from its arguments; undeclared attributes that they use are added."""
        signature = cls.__new__(cls)
        signature.inputs, signature.outputs, signature.attrs = inputs, outputs, dict(attrs)
        for arg in (*inputs, *outputs):
            signature._declare(arg)
        return signature

    def _arg(self, text: str) -> ArgDef:
        arg, kind = _parse_arg(text)
        return replace(arg, dtype=None, type_attr=kind) if kind in self.attrs and arg.dtype else arg

    def _declare(self, arg: ArgDef) -> None:
        if arg.type_attr:
            self.attrs.setdefault(arg.type_attr, AttrDef(arg.type_attr, "type"))
        if arg.count:
            self.attrs.setdefault(arg.count, AttrDef(arg.count, "int", minimum=1))

    @cached_property
    def simple_outputs(self) -> int | None:
        """The number of outputs if it is independent of attributes, else None."""
        single = all(not self._is_list(arg) for arg in self.outputs)
        return len(self.outputs) if single else None

    @cached_property
    def host_inputs(self) -> tuple[int, ...]:
        """The positions of the inputs that a kernel reads in host memory."""
        return _positions(self.inputs, "host", "const")

    @cached_property
    def constant_inputs(self) -> tuple[int, ...]:
        """The positions of the inputs that are known when a node is compiled."""
        return _positions(self.inputs, "const")

    @cached_property
    def host_outputs(self) -> tuple[int, ...]:
        """The positions of the outputs that a kernel writes to host memory."""
        return _positions(self.outputs, "host", "const")

    def single_inputs(self) -> list[str]:
        """The names of the inputs before the first list; each is the name of one slot."""
        return [arg.name for arg in takewhile(lambda arg: not self._is_list(arg), self.inputs)]

    @cached_property
    def single_types(self) -> tuple[DType | str, ...]:
        """The type or type attribute of each output, or an empty string for a reference.

        Empty if an output is a list.
        """
        if self.simple_outputs is None:
            return ()
        return tuple(
            arg.type_attr or arg.dtype or "" if not arg.is_ref else "" for arg in self.outputs
        )

    @cached_property
    def required_attrs(self) -> frozenset[str]:
        """The attributes without a default."""
        return frozenset([attr.name for attr in self.attrs.values() if not attr.has_default])

    @cached_property
    def names_functions(self) -> bool:
        """True if an attribute is a function or a list of functions."""
        return any("func" in attr.kind for attr in self.attrs.values())

    @cached_property
    def has_tensors(self) -> bool:
        """True if an attribute is a tensor or a list of tensors."""
        return any("tensor" in attr.kind for attr in self.attrs.values())

    @cached_property
    def has_references(self) -> bool:
        """True if an input or output is a reference."""
        return any(arg.is_ref for arg in (*self.inputs, *self.outputs))

    def _is_list(self, arg: ArgDef) -> bool:
        listed = arg.type_attr and self.attrs[arg.type_attr].kind == "list(type)"
        return bool(arg.count or listed)

    def input_types(self, attrs: Mapping[str, Any]) -> list[DType]:
        """The type of every input, in order. Raises ValueError if an attribute is missing."""
        return self._types(self.inputs, attrs)

    def output_types(self, attrs: Mapping[str, Any]) -> list[DType]:
        """The type of every output, in order. Raises ValueError if an attribute is missing."""
        return self._types(self.outputs, attrs)

    def output_count(self, attrs: Mapping[str, Any]) -> int:
        """The number of outputs, counted without listing them. Raises ValueError likewise."""
        return sum(self.arg_count(arg, attrs) for arg in self.outputs)

    def output_type(self, port: int, attrs: Mapping[str, Any]) -> DType | None:
        """The type of one output, or None if absent. Raises ValueError like `output_types`."""
        if self.simple_outputs is not None:
            outputs = self.outputs[port : port + 1]
            return next(iter(self.arg_types(outputs[0], attrs)), None) if outputs else None
        for arg in self.outputs:
            types, count = self._type_run(arg, attrs)
            if port < len(types) * count:
                return _checked_type(arg, types[port % len(types)])
            port -= len(types) * count
        return None

    def _types(self, args: Sequence[ArgDef], attrs: Mapping[str, Any]) -> list[DType]:
        if len(args) == 1:  # often a long list, from which each reader needs one type
            return self.arg_types(args[0], attrs)
        return [t for arg in args for t in self.arg_types(arg, attrs)]

    def input_ends(self, attrs: Mapping[str, Any]) -> list[int]:
        """The cumulative number of inputs after each argument."""
        # a type that is the attribute of a function counts, too
        runs = (self._type_run(arg, attrs) for arg in self.inputs)
        return list(accumulate(len(types) * count for types, count in runs))

    def arg_types(self, arg: ArgDef, attrs: Mapping[str, Any]) -> list[DType]:
        """The types of the tensors of one argument."""
        single = arg.dtype or attrs.get(arg.type_attr or "")
        if type(single) is DType and not arg.count:
            return [single.ref if arg.is_ref else single]
        types, count = self._type_run(arg, attrs)
        return [_checked_type(arg, dtype) for dtype in types] * count

    def arg_count(self, arg: ArgDef, attrs: Mapping[str, Any]) -> int:
        """The number of tensors of one argument."""
        types, count = self._type_run(arg, attrs)
        return count * len([_checked_type(arg, dtype) for dtype in types])

    def arg_type(self, arg: ArgDef, attrs: Mapping[str, Any], index: int) -> DType:
        """The type of one tensor of an argument."""
        types, _ = self._type_run(arg, attrs)
        return _checked_type(arg, types[index % len(types)])

    def _type_run(self, arg: ArgDef, attrs: Mapping[str, Any]) -> tuple[tuple[Any, ...], int]:
        """The types of one argument, not yet checked, and how often they repeat."""
        value = arg.dtype if arg.dtype else self.value(arg.type_attr or "", attrs)
        types, count = value if isinstance(value, tuple) else (value,), 1
        if arg.count:
            count = self.value(arg.count, attrs)
            if not isinstance(count, int) or count < 0:
                message = f"attribute {arg.count!r} is not a valid count"
                raise ValueError(message)
            if count > MAX_COUNT:
                message = f"attribute {arg.count!r} is {count}, expected at most {MAX_COUNT}"
                raise ValueError(message)
        return types, count

    def value(self, name: str, attrs: Mapping[str, Any]) -> Any:
        """An attribute's value or default. Raises ValueError if it has neither."""
        if name in attrs:
            return attrs[name]
        attr = self.attrs.get(name)
        if attr is None or not attr.has_default:
            message = f"attribute {name!r} is missing"
            raise ValueError(message)
        return attr.default

    def infer(self, types: Sequence[DType | None], known: Mapping[str, Any]) -> dict[str, Any]:
        """Infer type and count attributes from the types of the inputs.

        Attributes in `known` are retained. Raises ValueError if the number of inputs does not match
        or an attribute cannot be inferred.
        """
        attrs = dict(known)
        rest = list(types)
        for arg in self.inputs:
            count = self._input_count(arg, rest, attrs)
            mine, rest = rest[:count], rest[count:]
            self._bind_arg(arg, mine, attrs)
        if rest:
            message = f"got {len(types)} inputs, expected {len(types) - len(rest)}"
            raise ValueError(message)
        for arg in self.outputs:
            self.arg_types(arg, attrs)
        return attrs

    def _input_count(self, arg: ArgDef, rest: list[DType | None], attrs: Mapping[str, Any]) -> int:
        """The number of remaining inputs that belong to an argument."""
        if not self._is_list(arg):
            count = 1
        elif arg.count and arg.count in attrs:
            count = attrs[arg.count]
            if not isinstance(count, int):
                message = f"attribute {arg.count!r} is not a valid count"
                raise ValueError(message)
        elif arg.type_attr and arg.type_attr in attrs and not arg.count:
            count = len(attrs[arg.type_attr])
        else:
            later = self.inputs[self.inputs.index(arg) + 1 :]
            sharing = 1 + sum(arg.count is not None and arg.count == a.count for a in later)
            count, over = divmod(len(rest) - len(later) + sharing - 1, sharing)
            if over:
                message = (
                    f"{len(rest)} inputs cannot be divided into {sharing} lists of equal length"
                )
                raise ValueError(message)
        if count < 0 or count > len(rest):
            message = f"input {arg.name!r} is missing"
            raise ValueError(message)
        return count

    def _bind_arg(self, arg: ArgDef, types: list[DType | None], attrs: dict[str, Any]) -> None:
        if arg.count:
            attrs.setdefault(arg.count, len(types))
        if arg.type_attr is None:
            return
        known = [t.base if t and not arg.is_ref else t and t.base for t in types]
        if self.attrs[arg.type_attr].kind == "list(type)" and not arg.count:
            if None not in known:
                attrs.setdefault(arg.type_attr, tuple(known))
        elif dtypes := [t for t in known if t is not None]:
            attrs.setdefault(arg.type_attr, dtypes[0])


def _positions(args: Sequence[ArgDef], *memories: Memory) -> tuple[int, ...]:
    """The positions of the arguments with one of these memories."""
    return tuple(position for position, arg in enumerate(args) if arg.memory in memories)


def _checked_type(arg: ArgDef, dtype: Any) -> DType:
    if not isinstance(dtype, DType):
        message = f"attribute {arg.type_attr!r} is not a type"
        raise ValueError(message)
    return dtype.ref if arg.is_ref else dtype


_DELIMITER: Final = re.compile(r"[,()\[\]{}]|'[^']*'?")


def _split_top_level(text: str) -> list[str]:
    """Split at commas outside of brackets and quotes."""
    parts, depth, start = [], 0, 0
    for match in _DELIMITER.finditer(text):
        char = match[0]
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    parts.append(text[start:].strip())
    return [piece for piece in parts if piece]


@lru_cache(maxsize=1024)  # many ops have the same arguments
def _parse_arg(text: str) -> tuple[ArgDef, str]:
    """An argument, and the name of its type or type attribute; a known type is no attribute."""
    name, _, kind = map(str.strip, text.partition(":"))
    mark, _, rest = kind.partition(" ")
    memory: Memory = "host" if mark == "host" else "const" if mark == "const" else ""
    kind = rest.strip() if memory else kind
    count, star, rest = kind.partition("*")
    kind = rest.strip() if star else kind
    is_ref = kind.startswith("Ref(")
    kind = kind[4:-1] if is_ref else kind
    try:
        dtype: DType | None = DType.from_name(kind)
    except KeyError:
        dtype = None
    number = count.strip() if star else None
    return ArgDef(name, dtype, None if dtype else kind, number, is_ref, memory), kind


_ATTR_DEF: Final = re.compile(
    r"(?P<name>\w+)\s*:\s*(?P<kind>list\(\w+\)|\w+|list\(\{[^}]*\}\)|\{[^}]*\})"
    r"(?:\s*>=\s*(?P<minimum>-?\d+))?(?:\s*=\s*(?P<default>.+))?$",
    re.DOTALL,
)


@lru_cache(maxsize=1024)  # many ops declare the same types
def _parse_attr(text: str) -> AttrDef:
    match = _ATTR_DEF.match(text)
    if match is None:
        message = f"attribute declaration {text!r} is malformed"
        raise ValueError(message)
    kind, allowed = match["kind"], None
    if "{" in kind:
        listed = kind.startswith("list(")
        items = _split_top_level(kind.removeprefix("list(").strip("{})"))
        scalar = "string" if items[0].startswith("'") else "type"
        allowed = tuple(_parse_default(item, scalar) for item in items)
        kind = f"list({scalar})" if listed else scalar
    minimum = int(match["minimum"]) if match["minimum"] else None
    if match["default"] is None:
        return AttrDef(match["name"], kind, minimum=minimum, allowed=allowed)
    return AttrDef(
        match["name"], kind, _parse_default(match["default"].strip(), kind), True, minimum, allowed
    )


def _parse_default(text: str, kind: str) -> Any:
    """Parse a default: `'text'`, `3`, `0.5`, `true`, `float32`, `?`, `[2,-1]`, a list in
    brackets.
    """
    if kind.startswith("list("):
        return tuple(_parse_default(piece, kind[5:-1]) for piece in _split_top_level(text[1:-1]))
    if kind == "string":
        return text.strip("'").encode()
    if kind == "type":
        return DType.from_name(text)
    if kind == "shape":
        return Shape(None if text == "?" else [None if d < 0 else d for d in parse_json(text)])
    if kind == "bool":
        return text == "true"
    if kind == "tensor":  # only that there is a default
        return None
    if kind == "float":  # an attribute has 32 bits
        return struct.unpack("f", struct.pack("f", float(text)))[0]
    return int(text)
