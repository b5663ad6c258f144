"""Ops that have no class here: known by their signature, and without a kernel.

Those of TensorFlow are in `declarations.txt`; an OpList or a SavedModel declares others. The text
has a line for each op: `Name! inputs->outputs|attributes`, where `!` marks a
stateful op, and `$KEY` stands for an attribute of the first part of the file.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from cfgraph.ir.functions import FunctionDefinition
from cfgraph.ir.signature import Signature
from cfgraph.ops.opdef.facts import CompilerSupport, SideEffects
from cfgraph.ops.opdef.op import Op


class DeclaredOp(Op, abstract=True):
    """An op of which only the signature is known. Every pass handles it, and no run executes it."""

    compilation = CompilerSupport(runnable=False, traceable=False, compiled=False)


@cache
def _declarations() -> tuple[dict[str, str], dict[str, str]]:
    """The frequent attributes by key, and the rest of the line of each op by name."""
    text = files(__package__).joinpath("declarations.txt").read_text("utf-8")
    attrs, _, ops = text.partition("\n\n")
    keys, names = (
        {name: rest for name, _, rest in (line.partition(" ") for line in part.splitlines())}
        for part in (attrs, ops)
    )
    return keys, names


def declared_op(name: str) -> type[DeclaredOp] | None:
    """Return the definition of an op, or None if TensorFlow has no op of this name."""
    frequent, declarations = _declarations()
    stateful = f"{name}!" in declarations
    line = declarations.get(f"{name}!" if stateful else name)
    if line is None:
        return None
    signature, _, attrs = line.partition("|")

    class Declared(DeclaredOp, abstract=True):
        """An op of TensorFlow without a kernel here."""

    Declared.__name__ = Declared.__qualname__ = Declared.name = name
    Declared.signature = signature
    Declared.attrs = re.sub(r"\$\w+", lambda match: frequent[match[0]], attrs)
    Declared.effects = SideEffects(stateful=stateful)
    return Declared


def op_of_file(name: str, declaration: FunctionDefinition) -> type[DeclaredOp]:
    """Return the definition of an op that a file declares."""
    inputs, outputs, attrs = declaration.inputs, declaration.outputs, declaration.attr_defs

    class Declared(DeclaredOp, abstract=True):
        """An op of a file without a kernel here."""

        _parsed = Signature.from_args(inputs, outputs, attrs)

    Declared.__name__ = Declared.__qualname__ = Declared.name = name
    Declared.effects = SideEffects(stateful=declaration.stateful)
    return Declared


def declared_names() -> list[str]:
    """The sorted names of all declared ops."""
    return sorted(name.removesuffix("!") for name in _declarations()[1])
