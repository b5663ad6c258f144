"""Groups of options: classes whose annotated fields are the options of commands.

A command is a function of arguments, options, and groups. `expand_groups` turns it into a function
of options alone, which typer understands:

    main(graph: Graph, devices: DeviceOptions)   ──▶   main(graph, devices, soft, rules, …)

A field without the annotation of an option keeps its default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import MISSING, Field, field
from functools import wraps
from typing import (
    Annotated,
    Any,
    ClassVar,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from typer.models import ArgumentInfo, OptionInfo


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
class OptionGroup:
    """A group of options; `PANEL` is its section of a help page.

    A frozen dataclass to type checkers. `dataclass` itself compiles methods for each class, which
    took a quarter of the time of `lower --help`; one constructor serves all groups.
    """

    PANEL: ClassVar[str | None] = None

    def __init__(self, *values: Any, **named: Any) -> None:
        members = dict(zip(group_fields(type(self)), values, strict=False)) | named
        for name, default in group_fields(type(self)).items():
            value = members.pop(name, default)
            if isinstance(value, Field):
                value = None if value.default_factory is MISSING else value.default_factory()
            if value is MISSING:
                raise TypeError(f"{type(self).__name__} lacks {name}")
            object.__setattr__(self, name, value)
        if members:
            raise TypeError(f"{type(self).__name__} has no {', '.join(members)}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"options are not changed: {name}")

    @property
    def is_set(self) -> bool:
        """True if any of the options was used."""
        values = [getattr(self, name) for name in group_fields(type(self))]
        return not all(value is None or value is False or value in ([], ()) for value in values)

    def replace(self, **values: Any) -> Self:
        """Return the group with other values of some members."""
        return extended_group(type(self), self, **values)


def group_fields(group: type[OptionGroup]) -> dict[str, Any]:
    """The members of a group and their defaults, or MISSING; those of its bases come first."""
    names: dict[str, Any] = {}
    for base in reversed(group.__mro__):
        for name, annotation in vars(base).get("__annotations__", {}).items():
            if not str(annotation).startswith("ClassVar"):
                names[name] = getattr(group, name, MISSING)
    return names


def expand_groups(main: Callable[..., None]) -> Callable[..., None]:
    """Return a function that has the options of groups as parameters, and passes groups on."""
    signature = inspect.signature(main, eval_str=True)
    parameters: dict[str, inspect.Parameter] = {}
    for parameter in signature.parameters.values():
        if not _is_group(parameter.annotation):
            _add(parameters, parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        for option in _options(parameter.annotation):
            _add(parameters, option)

    @wraps(main)
    def command(**values: Any) -> None:
        main(
            **{
                name: _group(parameter.annotation, values)
                if _is_group(parameter.annotation)
                else values[name]
                for name, parameter in signature.parameters.items()
            }
        )

    ordered = sorted(parameters.values(), key=_is_optional)
    command.__signature__ = signature.replace(parameters=ordered)  # type: ignore[attr-defined]
    command.__annotations__ = {}
    return command


def _add(parameters: dict[str, inspect.Parameter], parameter: inspect.Parameter) -> None:
    assert parameter.name not in parameters, f"two options are named {parameter.name}"
    parameters[parameter.name] = parameter


def _is_optional(parameter: inspect.Parameter) -> bool:
    return not any(isinstance(item, ArgumentInfo) for item in get_args(parameter.annotation))


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, OptionGroup)


def _options(group: Any) -> Iterator[inspect.Parameter]:
    """The options of a group as parameters."""
    hints = get_type_hints(group, include_extras=True)
    for name, default in group_fields(group).items():
        annotation = hints[name]
        if option := _option(annotation):
            info = copy(option)
            info.rich_help_panel = group.PANEL or info.rich_help_panel
            yield inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_default(default),
                annotation=Annotated[get_args(annotation)[0], info],
            )


def _option(annotation: Any) -> OptionInfo | None:
    """The declaration of an option in an annotation."""
    if get_origin(annotation) is not Annotated:
        return None
    return next((item for item in get_args(annotation) if isinstance(item, OptionInfo)), None)


def _default(default: Any) -> Any:
    if isinstance(default, Field):
        return None if default.default_factory is MISSING else default.default_factory()
    return inspect.Parameter.empty if default is MISSING else default


def _group(group: type[Any], values: Mapping[str, Any]) -> Any:
    """Make a group from the values of options."""
    hints = get_type_hints(group, include_extras=True)
    return group(**{name: values[name] for name in group_fields(group) if _option(hints[name])})


G = TypeVar("G", bound=OptionGroup)


def including(*groups: type[OptionGroup]) -> Callable[[type[G]], type[G]]:
    """A decorator that adds the options of other groups to a group."""

    def extend(group: type[G]) -> type[G]:
        return type(group.__name__, (group, *groups), {}) if groups else group

    return extend


def extended_group(group: type[G], options: OptionGroup, **values: Any) -> G:
    """Make a group from the members of one that it extends, and from other values."""
    members = {name: getattr(options, name) for name in group_fields(type(options))}
    return group(**{**members, **values})
