"""Groups of options: dataclasses whose annotated fields are the options of commands.

A command is a function of arguments, options, and groups. `expand_groups` turns it into a function
of options alone, which typer understands:

    main(graph: Graph, devices: DeviceOptions)   ──▶   main(graph, devices, soft, rules, …)

A field without the annotation of an option keeps its default. A field that is a group itself is
expanded too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import MISSING, Field, fields
from functools import wraps
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo, OptionInfo


class OptionGroup:
    """A group of options; `PANEL` is its section of a help page."""

    __slots__ = ()
    PANEL: ClassVar[str | None] = None


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
    for item in fields(group):
        annotation = hints[item.name]
        if _is_group(annotation):
            yield from _options(annotation)
        elif option := _option(annotation):
            info = copy(option)
            info.rich_help_panel = group.PANEL or info.rich_help_panel
            yield inspect.Parameter(
                item.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_default(item),
                annotation=Annotated[get_args(annotation)[0], info],
            )


def _option(annotation: Any) -> OptionInfo | None:
    """The declaration of an option in an annotation."""
    if get_origin(annotation) is not Annotated:
        return None
    return next((item for item in get_args(annotation) if isinstance(item, OptionInfo)), None)


def _default(item: Field[Any]) -> Any:
    if item.default_factory is not MISSING:
        return item.default_factory()
    return inspect.Parameter.empty if item.default is MISSING else item.default


def _group(group: type[Any], values: Mapping[str, Any]) -> Any:
    """Make a group from the values of options."""
    hints = get_type_hints(group, include_extras=True)
    members: dict[str, Any] = {}
    for item in fields(group):
        annotation = hints[item.name]
        if _is_group(annotation):
            members[item.name] = _group(annotation, values)
        elif _option(annotation):
            members[item.name] = values[item.name]
    return group(**members)


G = TypeVar("G", bound=OptionGroup)


def extended_group(group: type[G], options: OptionGroup, **values: Any) -> G:
    """Make a group from the members of one that it extends, and from other values."""
    as_dataclass: Any = options
    members = {item.name: getattr(options, item.name) for item in fields(as_dataclass)}
    return group(**{**members, **values})
