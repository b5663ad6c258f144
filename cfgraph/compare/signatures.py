"""What differs between two functions besides their bodies: arguments, results, attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cfgraph.compare.differences import Change
from cfgraph.compare.same import same
from cfgraph.ir.functions import Definition
from cfgraph.ir.signature import Arg
from cfgraph.ir.text_lex import name_text
from cfgraph.ir.text_print import arg_text, attr_def_text
from cfgraph.ir.text_print_values import AttrPrinter


def outside_bodies(old: Definition, new: Definition) -> Iterator[Change]:
    """What differs between two functions but for their bodies, part by part."""
    found = list(_parts(old, new))
    if not found and not same(replace(old, nodes=()), replace(new, nodes=())):
        found.append(Change("signature", "one", "another"))
    yield from found


def _parts(old: Definition, new: Definition) -> Iterator[Change]:
    for part, read in _SIGNATURE.items():
        before, after = read(old), read(new)
        if before != after:
            yield Change(part, before, after)
    yield from entries("attr declared", _declared(old), _declared(new))
    yield from entries("return", old.returns, new.returns)
    yield from entries("control return", old.control_returns, new.control_returns)
    yield from entries("attr", old.attrs, new.attrs)
    for place in sorted({*old.arg_attrs, *new.arg_attrs}):
        arguments = new.inputs if place < len(new.inputs) else old.inputs
        name = arguments[place].name if 0 <= place < len(arguments) else str(place)
        sides = (item.arg_attrs.get(place, {}) for item in (old, new))
        yield from entries(f"input {name} attr", *sides)


_SIGNATURE: Final[Mapping[str, Callable[[Definition], Any]]] = {
    "inputs": lambda definition: _arguments(definition.inputs),
    "outputs": lambda definition: _arguments(definition.outputs),
    "control outputs": lambda definition: ", ".join(definition.control_outputs),
    "stateful": lambda definition: definition.stateful,
}


def _arguments(items: Sequence[Arg]) -> str:
    return ", ".join(map(arg_text, items))


def _declared(definition: Definition) -> dict[str, str]:
    """The attributes that a function declares, as one writes them."""
    printer = AttrPrinter()
    return {
        name: attr_def_text(attr, printer).removeprefix(f"attr {name_text(name)}: ")
        for name, attr in definition.attr_defs.items()
    }


def entries(part: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[Change]:
    """What two mappings have under each key, where it is not the same."""
    for key in dict.fromkeys((*mine, *theirs)):
        if not same(mine.get(key), theirs.get(key)):
            yield Change(f"{part} {key}", mine.get(key), theirs.get(key))
