"""Reports as dataclasses: JSON, JSON schemas, and tables follow from their fields.

    class Route(Record):
        from_: Annotated[str, Column(style="cyan")]
        bytes: Count  #: Of those whose size is known.
        path: Maybe[str] = None

A field is a member of JSON, without the `_` at the end of its name; the comment `#:` at it, or
above it, describes the member in the schema. What annotates its type are `Keywords` of the schema
and the `Column` of the field in tables, which may also name the member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from math import isfinite, isnan
from threading import RLock
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

# JSON readers that use doubles lose digits of larger integers
_MAX_EXACT_INT: Final = 2**53
# a report may be made while another thread makes the first one of its class
_GENERATING: Final = RLock()


class Presence(Enum):
    """The presence of the member of a field in a document, in a type's annotation.

    An `OMITTED` one is absent if it is None, an `OPTIONAL` one is not required by the schema, and
    in place of an `INLINE` one are its own members.
    """

    omitted = "omitted"
    optional = "optional"
    inline = "inline"


class Keywords(dict[str, Any]):
    """Keywords that annotate a type for its schema, or known members of an inline mapping."""

    __hash__ = object.__hash__  # type: ignore[assignment]


T = TypeVar("T")
OMITTED: Final = Presence.omitted
OPTIONAL: Final = Presence.optional
INLINE: Final = Presence.inline
Maybe = Annotated[T | None, OMITTED]
Inline = Annotated[T, INLINE]
Unrequired = Annotated[T, OPTIONAL]
Count = Annotated[int, Keywords(minimum=0)]
Positive = Annotated[int, Keywords(minimum=1)]
Real = Annotated[
    float, Keywords(type=["number", "string"]), "NaN, Infinity and -Infinity are strings"
]


@dataclass_transform(frozen_default=True)
class Record:
    """A part of a report: a dataclass whose constructor is generated for its first instance.

    Its attributes are its fields: comparison and text have all of them.
    Most reports that a command imports are not printed, and generating methods takes a tenth of a
    millisecond for each.
    """

    def __new__(cls, *values: Any, **members: Any) -> Any:
        """Create an instance without values, for the generated `__init__`."""
        if "__init__" not in vars(cls):
            with _GENERATING:
                for kind in reversed(cls.__mro__[:-1]):
                    if "__init__" not in vars(kind):
                        dataclass(kind, repr=False, eq=False)
        return super().__new__(cls)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> bool:
        return vars(other) == vars(self) if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def from_attributes(cls, source: Any, /, **members: Any) -> Self:
        """A report of the attributes of an object with the names of its fields, and of members."""
        kind: Any = cls
        names = (field.attribute for field in report_fields(kind))
        return cls(**members, **{n: getattr(source, n) for n in names if n not in members})

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {key: json_value(value) for key, value in members(self)}


class DocumentResult(Record):
    """The result of a command in its JSON document, whose summary is of the type `summary`."""

    types: ClassVar[dict[str, type[DocumentResult]]] = {}
    command: ClassVar[str]
    summary: ClassVar[type[Record]]
    title: ClassVar[str]

    def __init_subclass__(
        cls, command: str, summary: type[Record] = Record, title: str | None = None
    ) -> None:
        cls.types[command] = cls
        cls.command, cls.summary = command, summary
        cls.title = title or f"What `cfgraph {command} --json` answers with"


class Column(NamedTuple):
    """A column: its JSON key and its heading, which defaults to the key; both name the field.

    Numbers are aligned to the `right` by default. An `optional` column is omitted from text if all
    its cells are empty; a `spare` column, the last one of a table, is omitted on a terminal that is
    too narrow for it; `names` lose outer scopes there. A scope that cells of `scoped` columns share
    is printed once. `cell` makes the text of a value.
    """

    key: str = ""
    title: str | None = None
    right: bool | None = None
    style: str = ""
    optional: bool = False
    spare: bool = False
    names: bool = False
    scoped: bool = False
    cell: Callable[[Any], Any] | None = None

    @property
    def heading(self) -> str:
        """The text above the column."""
        return self.key if self.title is None else self.title


class Field(NamedTuple):
    """A field of a report: its attribute and its JSON key, its type, and what annotates that."""

    attribute: str
    key: str
    type: Any
    notes: tuple[Any, ...]


@cache
def report_fields(kind: Any) -> tuple[Field, ...]:
    """The fields of a dataclass, in order."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        _field(name, hint)
        for name, hint in hints.items()
        if name[:1] != "_" and get_origin(hint) is not ClassVar
    )


def _field(name: str, hint: Any) -> Field:
    kind, notes = split_annotation(hint)
    keys = [note.key for note in notes if isinstance(note, Column) and note.key]
    return Field(name, keys[0] if keys else name.rstrip("_"), kind, notes)


def split_annotation(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type, and what annotates it."""
    if get_origin(hint) is not Annotated:
        return hint, ()
    kind, *notes = get_args(hint)
    return kind, tuple(notes)


def union_types(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the type."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def members(report: Any) -> Iterator[tuple[str, Any]]:
    """Yield the members of a report in JSON."""
    for field in report_fields(report.__class__):
        value = getattr(report, field.attribute)
        if INLINE in field.notes:
            yield from () if value is None else _inner_members(value)
        elif value is not None or OMITTED not in field.notes:
            yield field.key, value


def json_value(value: Any) -> Any:
    """Convert a value to JSON types without loss."""
    if isinstance(value, Mapping):
        return {str(key): json_value(member) for key, member in value.items()}
    if isinstance(value, str | bool | None):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _MAX_EXACT_INT else str(value)
    if isinstance(value, float):
        return value if isfinite(value) else _non_finite_text(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Record):
        return value.to_json()
    if to_json := getattr(value, "to_json", None):
        return json_value(to_json())
    if to_list := getattr(value, "tolist", None):  # NumPy's arrays and scalars
        return json_value(to_list())
    if is_report(value):
        return {key: json_value(member) for key, member in members(value)}
    if isinstance(value, Sequence | set | frozenset):
        return [json_value(member) for member in value]
    return str(value)


def _non_finite_text(value: float) -> str:
    if isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _inner_members(value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, Mapping) else members(value)


def is_report(value: Any) -> bool:
    """True for a dataclass and for an instance of one."""
    kind = value if isinstance(value, type) else type(value)
    return issubclass(kind, Record) or hasattr(kind, "__dataclass_fields__")


@cache
def columns(kind: type, names: tuple[str, ...]) -> tuple[Column, ...]:
    """The columns of fields and properties of a dataclass; `reason.kind` is one of a field."""
    return tuple(_column(_find_field(kind, name)) for name in names)


def _find_field(kind: type, name: str) -> Field:
    name, _, rest = name.partition(".")
    found = next((field for field in report_fields(kind) if field.attribute == name), None)
    if found is None:
        hints = get_type_hints(getattr(kind, name).fget, include_extras=True)
        found = _field(name, hints["return"])
    return _find_field(union_types(found.type)[0], rest) if rest else found


def _column(field: Field) -> Column:
    column = next((note for note in field.notes if isinstance(note, Column)), Column())
    types = {split_annotation(kind)[0] for kind in union_types(field.type)} - {NoneType}
    right = types <= {int, float} if column.right is None else column.right
    title = field.key.replace("_", " ") if column.title is None else column.title
    return column._replace(key=field.key, title=title, right=right)
