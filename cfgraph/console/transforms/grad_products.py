"""Jacobians, Hessians, and products for the `grad` command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cfgraph.cli.pass_options import GradOptions
from cfgraph.console.transforms.grad_report import AddedGradients, GradientRow
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import UNKNOWN_SHAPE
from cfgraph.ops.families.stacks import StackPushV2
from cfgraph.ops.opdef.op import is_a, role_of
from cfgraph.ops.shape_inference import infer_shapes

# late imports: most derivatives are gradients, which need no Jacobians

# options that a kind of derivative replaces, and those that only some kinds have
_OTHERS: Final = ("order", "recompute", "swap_memory", "grad_ys", "check")
_LOOPS: Final = ("jacobian", "hessian")
_LOOP_OPTIONS: Final = ("mode", "per_example", "rows_in_flight")


def requested_kind(options: GradOptions) -> str | None:
    """The kind of derivative, or None for gradients. Raises UsageError for other options."""
    kinds = [name for name in ("jacobian", "hessian", "jvp", "hvp") if getattr(options, name)]
    kind, defaults = next(iter(kinds), None), GradOptions()
    excluded = [*kinds[1:], *(_OTHERS if kind else ())]
    if kind not in _LOOPS:
        excluded += _LOOP_OPTIONS
    if kind == "hessian":
        excluded.append("per_example")
    for name in excluded:
        value, default = getattr(options, name), getattr(defaults, name)
        if value != default and (value or default):
            flag = f"--{name.replace('_', '-')}"
            message = f"{flag} does not apply to {'--' + kind if kind else 'gradients'}"
            hint = None if kind else "add --jacobian"
            raise UsageError(message, hint=hint)
    if kind in _LOOPS:
        _require_mode(options.mode)
    return kind


def _require_mode(mode: str) -> None:
    from cfgraph.passes.jacobians import MODES

    if mode not in MODES:
        hint = f"use one of {', '.join(MODES)}"
        raise UsageError(f"invalid --mode {mode!r}", hint=hint)


def added_products(
    graph: Graph,
    kind: str,
    ys: Sequence[str],
    xs: Sequence[str],
    values: Sequence[Any],
    options: GradOptions,
    stops: Sequence[str],
) -> AddedGradients:
    """Add derivatives of a kind to a graph; `values` are tangents, or vectors."""
    before = set(graph.nodes)
    names = _names(graph, kind, ys, xs, values, options, stops)
    added = [node for node in graph if node.name not in before]
    shapes, rows = infer_shapes(graph), list[GradientRow]()
    for (y, x), name in names:
        tensor = None if name is None else graph.tensor(name)
        dtype = None if tensor is None else tensor.dtype
        shape = UNKNOWN_SHAPE if tensor is None else shapes[tensor]
        rows.append(GradientRow(1, x, name, dtype, shape, None, y))
    return AddedGradients(
        tuple(ys),
        tuple(rows),
        len(added),
        sum(is_a(node, StackPushV2) for node in added),
        sum(role_of(node) is Role.LOOP_COND for node in added),
        kind,
    )


def _names(
    graph: Graph,
    kind: str,
    ys: Sequence[str],
    xs: Sequence[str],
    values: Sequence[Any],
    options: GradOptions,
    stops: Sequence[str],
) -> list[tuple[tuple[str, str], str | None]]:
    """The names of the derivatives, each with the y and the x that it belongs to."""
    from cfgraph.passes.jacobians import hessian, hvp, jacobian, jvp

    common: dict[str, Any] = {
        "stop_gradients": stops,
        "unconnected": options.unconnected,
        "ignore_custom": options.ignore_custom,
    }
    if kind in _LOOPS:
        loop: dict[str, Any] = {"mode": options.mode, "rows_in_flight": options.rows_in_flight}
        if kind == "jacobian":
            loop["per_example"] = options.per_example
        matrix = (jacobian if kind == "jacobian" else hessian)(graph, ys, xs, **loop, **common)
        firsts = ys if kind == "jacobian" else xs
        rows = zip(firsts, matrix, strict=True)
        return [((y, x), name) for y, row in rows for x, name in zip(xs, row, strict=True)]
    if kind == "jvp":
        names = jvp(graph, ys, xs, values, **common)
        return [((y, ""), name) for y, name in zip(ys, names, strict=True)]
    names = hvp(graph, ys, xs, values, **common)
    return [(("", x), name) for x, name in zip(xs, names, strict=True)]
