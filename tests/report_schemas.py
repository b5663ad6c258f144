"""JSON schemas of the documents of commands, from the classes of their reports."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import ModuleType, NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import cfgraph.backends
import cfgraph.console
import cfgraph.integrations.converters
import cfgraph.runtime.run_executor
from cfgraph.cli.json_output import Artifact, Document, InputFile
from cfgraph.console.documents import (
    ChangedNodeReport,
    ChangeReport,
    NamedNode,
    RunsReport,
    StructureReport,
    ValueReport,
)
from cfgraph.console.runs.run_report import DifferenceFinding
from cfgraph.errors import ErrorReport, FindingReport, Location
from cfgraph.reports import (
    INLINE,
    OMITTED,
    OPTIONAL,
    DocumentResult,
    Field,
    Keywords,
    Record,
    report_fields,
    split_annotation,
    union_types,
)
from cfgraph.runtime.run_executor import ExecutorReport

Schema = dict[str, Any]
DRAFT = "https://json-schema.org/draft/2020-12/schema"
DESCRIPTION = (
    "A field may be added without another number of the schema; none is taken away or given another"
    " type. Integers beyond 2^53 are strings, as are NaN and infinities."
)
ENVELOPE = "urn:cfgraph:envelope:1"
JSON_TYPES: dict[Any, str] = {
    str: "string",
    int: "integer",
    bool: "boolean",
    float: "number",
    NoneType: "null",
}
# reports that are schemas of their own, which others refer to
SHARED: dict[Any, str] = {
    InputFile: "input",
    Artifact: "artifact",
    Location: "where",
    FindingReport: "finding",
    ErrorReport: "error",
    ValueReport: "value",
    ChangeReport: "change",
    NamedNode: "named",
    ChangedNodeReport: "changed",
    StructureReport: "structure",
    RunsReport: "runs",
}
# their descriptions are the docstrings of the classes
DESCRIBED = (ValueReport, ChangeReport, StructureReport, RunsReport)


class SchemaWriter:
    """Writes schemas of types; shared reports are references into the document `home`."""

    def __init__(self, home: str) -> None:
        self.home = home

    def schema(self, hint: Any) -> Schema:
        """The schema of a type."""
        kind, notes = split_annotation(hint)
        return _annotated(self._union(union_types(kind)), notes)

    def _union(self, kinds: Sequence[Any]) -> Schema:
        schemas = [self._single(*split_annotation(kind)) for kind in kinds]
        detailed = [schema for schema in schemas if {*schema} != {"type"}]
        if len(schemas) == 1:
            return schemas[0]
        if len(detailed) > 1 or not all("type" in schema for schema in schemas):
            return {"anyOf": schemas}
        types = [kind for schema in schemas for kind in _listed(schema["type"])]
        return {**(detailed[0] if detailed else {}), "type": types}

    def _single(self, kind: Any, notes: Sequence[Any]) -> Schema:
        return _annotated(self._unannotated(kind), notes)

    def _unannotated(self, kind: Any) -> Schema:
        origin, arguments = get_origin(kind) or kind, get_args(kind)
        if kind in JSON_TYPES:
            return {"type": JSON_TYPES[kind]}
        if kind is Any:
            return {}
        if len(union_types(kind)) > 1:
            return self._union(union_types(kind))
        if origin is Literal:
            only = {"const": arguments[0]}
            return only if len(arguments) == 1 else {"type": "string", "enum": [*arguments]}
        if issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.schema(arguments[1])}
        if issubclass(origin, Sequence):
            return {"type": "array", "items": self.schema(arguments[0])}
        if kind in SHARED:
            return {"$ref": f"{self.home}#/$defs/{SHARED[kind]}"}
        return self.object(kind)

    def object(self, *kinds: type) -> Schema:
        """The schema of a report, or of what several reports have in common."""
        return _merged([self._object(kind) for kind in kinds])

    def _object(self, kind: type) -> Schema:
        required, properties = [], dict[str, Schema]()
        for field, is_required in self._fields(kind):
            schema = self._member(field)
            known = properties.get(field.key)
            properties[field.key] = schema if known is None else _merged([known, schema])
            if is_required:
                required.append(field.key)
        found: Schema = {"type": "object", "required": required, "properties": properties}
        return {key: value for key, value in found.items() if value}

    def _member(self, field: Field) -> Schema:
        kinds = union_types(field.type)
        if OMITTED in field.notes:
            kinds = tuple(kind for kind in kinds if kind is not NoneType)
        return _annotated(self._union(kinds), field.notes)

    def _fields(self, kind: type) -> Iterator[tuple[Field, bool]]:
        """Yield the fields of a report with those of its inline ones, and whether they must be."""
        texts = _field_texts(kind)
        for field in report_fields(kind):
            if INLINE not in field.notes:
                notes = (*field.notes, *texts.get(field.attribute, ()))
                yield field._replace(notes=notes), OMITTED not in notes and OPTIONAL not in notes
                continue
            kinds = union_types(field.type)
            for inner, is_required in self._inner_fields(kind, kinds[0], field.notes):
                yield inner, is_required and NoneType not in kinds

    def _inner_fields(
        self, owner: Any, kind: Any, notes: Sequence[Any]
    ) -> Iterator[tuple[Field, bool]]:
        if get_origin(kind) is None:
            yield from self._fields(kind)
            return
        if get_args(kind)[1] is ExecutorReport:
            yield from _executor_fields(owner)
            return
        for known in (note for note in notes if isinstance(note, Keywords)):
            for key, hint in known.items():
                yield Field(key, key, *split_annotation(hint)), False


def _executor_fields(owner: Any) -> Iterator[tuple[Field, bool]]:
    """Yield the members that executors add to a report."""
    for module in (cfgraph.runtime.run_executor, *_modules(cfgraph.backends)):
        for kind in vars(module).values():
            is_own = isinstance(kind, type) and kind.__module__ == module.__name__
            if is_own and "member" in vars(kind) and kind.explains is owner.explains:
                hint = (
                    kind
                    if issubclass(kind, Record)
                    else get_type_hints(kind.to_json, include_extras=True)["return"]
                )
                yield Field(kind.member, kind.member, *split_annotation(hint)), False


def _modules(package: ModuleType) -> list[ModuleType]:
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [importlib.import_module(module.name) for module in found]


@cache
def _field_texts(kind: type) -> dict[str, list[str]]:
    """The texts of the comments `#:` above or behind the fields of a report."""
    texts = dict[str, list[str]]()
    for owner in reversed(kind.__mro__[:-1]):
        text = list[str]()
        for line in inspect.getsource(owner).splitlines():
            field, _, comment = line.partition("#: ")
            text += [comment] if comment else []
            if declared := re.match(r" {4}(\w+): ", field):
                texts[declared[1]] = [" ".join(text)] if text else []
                text = []
    return texts


def _annotated(schema: Schema, notes: Sequence[Any]) -> Schema:
    """A schema with the keywords and the last text of what annotates its type."""
    for note in notes:
        if isinstance(note, Keywords):
            schema = {**schema, **note}
    texts = [note for note in notes if isinstance(note, str)]
    return {**schema, "description": texts[-1]} if texts else schema


def _listed(types: str | list[str]) -> list[str]:
    return [types] if isinstance(types, str) else types


def _merged(schemas: Sequence[Schema]) -> Schema:
    """The schema of what has one of several schemas: members of objects are those of all."""
    first, *others = schemas
    for other in others:
        first = _merged_pair(first, other)
    return first


def _merged_pair(a: Schema, b: Schema) -> Schema:
    if a == b:
        return a
    if "items" in a and "items" in b:
        return {**b, **a, "items": _merged_pair(a["items"], b["items"])}
    if "properties" not in a or "properties" not in b:
        return {"anyOf": [*_with_alternative(a.get("anyOf", [a]), b)]}
    shared = {**b["properties"], **a["properties"]}
    common = a["properties"].keys() & b["properties"].keys()
    properties = {
        key: _merged_pair(a["properties"][key], b["properties"][key]) if key in common else schema
        for key, schema in shared.items()
    }
    required = [key for key in a["required"] if key in b["required"]]
    return {**a, "required": required, "properties": properties}


def _with_alternative(schemas: Sequence[Schema], other: Schema) -> Iterator[Schema]:
    """Yield schemas and another one, which is merged into that of arrays if it is one too."""
    arrays = [schema for schema in schemas if "items" in schema and "items" in other]
    yield from (schema for schema in schemas if schema not in arrays)
    yield _merged([*arrays, other])


def envelope_schema() -> Schema:
    """The schema of what all documents have in common."""
    writer = SchemaWriter("")
    definitions = {}
    for kind, name in SHARED.items():
        kinds = (kind, DifferenceFinding) if kind is FindingReport else (kind,)
        texts = [kind.__doc__] if kind in DESCRIBED else []
        definitions[name] = _annotated(writer.object(*kinds), texts)
    return {
        "$schema": DRAFT,
        "$id": ENVELOPE,
        "title": "What every command of cfgraph answers with under --json",
        "description": DESCRIPTION,
        **writer.object(Document),
        "$defs": definitions,
    }


def command_schema(result: type[DocumentResult]) -> Schema:
    """The schema of the documents of a command."""
    writer = SchemaWriter(ENVELOPE)
    parts = {"summary": result.summary, "result": result}
    members = {name: writer.object(kind) for name, kind in parts.items() if kind is not Record}
    return {
        "$schema": DRAFT,
        "$id": f"urn:cfgraph:{result.command}:1",
        "title": result.title,
        "allOf": [{"$ref": ENVELOPE}],
        "properties": {"schema": {"const": f"cfgraph.{result.command}/1"}},
        "if": {"properties": {"error": {"type": "null"}}},
        "then": {"properties": members},
    }


def schemas() -> dict[str, Schema]:
    """The schemas of the envelope and of all commands, by name."""
    _modules(cfgraph.console)
    _modules(cfgraph.integrations.converters)
    commands = {name: command_schema(kind) for name, kind in DocumentResult.types.items()}
    return {"envelope": envelope_schema(), **commands}
