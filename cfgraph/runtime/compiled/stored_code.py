"""Form of the generated code of a run in a cache.

Kernels and constants are not stored: they are bound to the nodes of the run again, by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from cfgraph.ir.graph import Graph
from cfgraph.runtime.compiled.node_writer import called_kernel
from cfgraph.runtime.compiled.value_expressions import raw, strings, value_expression
from cfgraph.runtime.engine.plan import Plan
from cfgraph.runtime.program import Constant, GeneratedCode, NotCompiled

_MAX_LITERAL: Final = 4096
_CODE_MEMBERS: Final = {
    "source": str,
    "positions": list,
    "constants": dict,
    "may_be_dead": bool,
    "calls": int,
}
_REASON_MEMBERS: Final = {"reason": str}
_NAMES: Final = {"__builtins__": {}, "np": np, "raw": raw, "strings": strings}


def encode(code: GeneratedCode, constants: list[Constant]) -> bytes | None:
    """The text of generated code, or None if a constant has none."""
    stored = {}
    for value in constants:
        form = _constant_form(value)
        if form is None:
            return None
        stored[value.name] = form
    positions = [(plan.node.name if plan else None, hoisted) for plan, hoisted in code.positions]
    document = {
        "source": code.source,
        "positions": positions,
        "constants": stored,
        "may_be_dead": code.may_be_dead,
        "calls": code.calls,
    }
    return json.dumps(document).encode()


def encode_reason(error: NotCompiled) -> bytes:
    """The text of the reason why there is no code."""
    return json.dumps({"reason": error.reason, "node": error.node and error.node.name}).encode()


def _constant_form(value: Constant) -> tuple[str, str] | None:
    """The recipe to recreate a constant, from a node or an expression; None if there is none."""
    plan, content = value.plan, value.content
    if plan is not None and callable(content):
        return "kernel", plan.node.name
    if plan is not None and not plan.node.inputs:
        return "value", plan.node.name
    if getattr(content, "nbytes", 0) > _MAX_LITERAL:
        return None
    text = value_expression(content)
    return None if text is None else ("literal", text)


def decode(data: bytes, graph: Graph, plan: Plan) -> GeneratedCode | None:
    """The code of a run from its text; None if it does not fit the plan.

    Raises NotCompiled with the reason, if that is what was stored.
    """
    try:
        document = json.loads(data)
        if _has_members(document, _REASON_MEMBERS):
            name = document["node"]
            raise NotCompiled(document["reason"], None if name is None else graph.nodes[name])
        if not _has_members(document, _CODE_MEMBERS):
            return None
        positions = [
            (None if name is None else plan.nodes[graph.nodes[name]], hoisted)
            for name, hoisted in document["positions"]
        ]
        constants = {
            name: _constant(kind, text, graph, plan)
            for name, (kind, text) in document["constants"].items()
        }
        source, may_be_dead, calls = (document[x] for x in ("source", "may_be_dead", "calls"))
        if len(positions) != source.count("\n"):  # errors have the position of their line
            return None
        return GeneratedCode(source, positions, constants, may_be_dead, calls)
    except NotCompiled:
        raise
    except Exception:  # the file is damaged, which anything may follow from
        return None


def _has_members(document: Any, members: Mapping[str, type]) -> bool:
    """True for a document with these members, each of its type."""
    return all(type(document.get(name)) is kind for name, kind in members.items())


def _constant(kind: str, text: str, graph: Graph, plan: Plan) -> Any:
    if kind == "literal":
        return eval(text, dict(_NAMES))
    known = plan.nodes[graph.nodes[text]]
    return known.kernel() if kind == "value" else called_kernel(known, plan.frames.of[known.node])
