"""The list of ops: kernel, gradient, shape function, lowering, XLA, and types of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from inspect import getattr_static
from typing import Annotated, Any, Literal

from cfgraph.cli.json_output import print_document
from cfgraph.cli.options import Color
from cfgraph.cli.output import Page, page, report_table
from cfgraph.errors import UsageError
from cfgraph.ir import registry
from cfgraph.ir.dtypes import DType
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.role import FORWARDING_ROLES, Role
from cfgraph.ops.declared import declared_names
from cfgraph.ops.index import FAMILIES
from cfgraph.ops.omitted import find_omission
from cfgraph.ops.opdef.gradient_api import no_gradient, zero_gradient
from cfgraph.ops.opdef.op import Op, lookup
from cfgraph.reports import Column, Count, DocumentResult, Keywords, Record

GradientKind = Literal["formula", "zero", "none", "lowered", "control_flow", "missing"]


@dataclass(frozen=True)
class OpSupport:
    """Support of one op.

    `gradient` is a formula, zero, none (an op that stops gradients), lowered (that of the lowered
    form), control_flow (that of the loop or conditional that the op is part of), or missing. `xla`
    is support by TensorFlow's XLA, `traced` by the jax engine. `types` maps each type attribute to
    the dtypes that it allows; an empty tuple allows all.
    """

    name: Annotated[str, Column(title="op", style="cyan")]
    family: str
    kernel: bool
    gradient: GradientKind
    shape: Annotated[bool, Column(cell=_yes)]
    lowered: bool
    xla: bool
    traced: bool
    stateful: bool
    types: Mapping[str, tuple[str, ...]]

    @property
    def runs(self) -> Annotated[str, Column(title="kernel")]:
        """One word for the kernel of the op in a run."""
        return "lowered" if self.lowered else _yes(self.kernel)

    @property
    def compiles(self) -> Annotated[str, Column(title="XLA")]:
        """One word for the support of the op by XLA."""
        return "lowered" if self.lowered else _yes(self.xla)

    @property
    def type_text(self) -> Annotated[str, Column(title="types", spare=True)]:
        """The dtypes in one cell."""
        return "; ".join(f"{key}: {', '.join(names) or 'any'}" for key, names in self.types.items())


class OpsSummary(Record):
    """The numbers of listed ops, and of those with a class."""

    ops: Count
    registered: Count


class OpsResult(DocumentResult, command="ops", summary=OpsSummary):
    """The support of each op."""

    ops: Sequence[Annotated[OpSupport, Keywords(additionalProperties=False)]]


def supported_ops(pattern: str = "*", *, every: bool = False) -> Iterator[OpSupport]:
    """The support of each op whose name matches a pattern, in the order of names.

    With `every`, also the ops of which only the signature is known, in no family.
    """
    family_of = dict.fromkeys(_declared() if every else [], "")
    family_of |= {op: family for family, ops in FAMILIES.items() for op in ops.split()}
    wanted = pattern.lower()
    for name in sorted(family_of):
        if fnmatchcase(name.lower(), wanted):
            op = lookup(name)
            assert op is not None
            yield _support(op, family_of[name])


def _support(op: type[Op], family: str) -> OpSupport:
    lowered = bool(op.calls.kind) and not op.compilation.runnable
    return OpSupport(
        op.name,
        family,
        op.compilation.runnable or lowered or bool(op.role),
        "lowered" if lowered else _gradient_kind(op),
        getattr_static(op, "shape") is not getattr_static(Op, "shape"),
        lowered,
        op.compiles(),
        op.compilation.traceable,
        op.effects.stateful,
        {
            key: tuple(item.name for item in attr.allowed or () if isinstance(item, DType))
            for key, attr in op.parsed().attrs.items()
            if attr.kind in ("type", "list(type)")
        },
    )


def _gradient_kind(op: type[Op]) -> GradientKind:
    if op.role in FORWARDING_ROLES or op.role is Role.LOOP_COND:
        return "control_flow"
    if op.gradient is None:
        return "missing"
    known: dict[Any, GradientKind] = {no_gradient: "none", zero_gradient: "zero"}
    return known.get(op.gradient, "formula")


def print_ops(pattern: str, *, every: bool, json: bool, color: Color) -> None:
    """Print the ops that match a pattern. Raises UsageError if none does."""
    ops = list(supported_ops(pattern, every=every))
    if not ops:
        raise _unknown_pattern(pattern)
    if json:
        summary = OpsSummary(len(ops), len(list(registry.op_names())))
        print_document(OpsResult(ops), summary=summary)
    else:
        _print_table(page(color), ops, _total(every=every))


def _declared() -> list[str]:
    """Return the ops without a class: those of TensorFlow, and those that files declare."""
    return [*declared_names(), *registry.names_of_files()]


def _total(*, every: bool) -> int:
    return len(list(registry.op_names())) + (len(_declared()) if every else 0)


def _unknown_pattern(pattern: str) -> UsageError:
    omission = find_omission(pattern)
    if omission is not None:
        return UsageError(f"no kernel for {pattern}; {omission.reason}", hint=omission.hint)
    count = sum(1 for _ in supported_ops(f"*{pattern}*")) if pattern.isalnum() else 0
    hint = f"'*{pattern}*' matches {count} op{'s' * (count != 1)}" if count else None
    if hint is None and any(supported_ops(pattern, every=True)):
        hint = "--all lists the ops without a kernel"
    hint = hint or did_you_mean(pattern, registry.op_names())
    return UsageError(f"no op matches {pattern!r}", hint=hint)


def _print_table(out: Page, ops: list[OpSupport], total: int) -> None:
    out.heading("Ops", f"{len(ops)} of {total}")
    names = ("name", "family", "runs", "gradient", "shape", "compiles", "type_text")
    out.table(report_table(OpSupport, ops, *names))


def _yes(value: bool) -> str:
    return "yes" if value else "no"
