"""Optimizer ops from one update rule: dense and sparse, reference and handle forms.

A rule `Adam` with slots `m v` defines the ops `ApplyAdam` (references), `ResourceApplyAdam`
(handles) and, if it has sparse forms, `SparseApplyAdam` and `ResourceSparseApplyAdam`. Sparse
forms update the rows listed in `indices`, sequentially if a row is listed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.variables import NUMERIC, Variable
from cfgraph.ops.kernels.array_namespace import holds, is_tracing
from cfgraph.ops.opdef.facts import CompilerSupport, SideEffects
from cfgraph.ops.opdef.op import Kernel, Op, OpError

# elements that are updated at once
_BLOCK: Final = 1 << 14


class UpdateRule(Op, abstract=True):
    """An elementwise update of a variable and its slots.

    `slots` and `inputs` are names; an input whose dtype differs from the variable's is written
    `name:type`; `options` are attributes. `signs` lists the inputs that must be `positive`,
    `non-negative`, or `non-positive`; `signs_of_sparse` restricts this check to the sparse forms.
    `update(x)` reads variable, slots, inputs, and options as attributes of `x`, and assigns the new
    values of `x.var` and the slots, computed by `x.xp`. It must not change arrays in place.
    """

    effects = SideEffects(stateful=True)
    slots: ClassVar[str] = ""
    inputs: ClassVar[str]
    options: ClassVar[str] = ""
    signs: ClassVar[Mapping[str, str]] = {}
    signs_of_sparse: ClassVar[bool] = False
    # kinds of types for which TensorFlow's XLA compiles the form ResourceApply
    compiled_kinds: ClassVar[str] = "fc"
    update: ClassVar[Callable[..., None]]
    shape = staticmethod(lambda context: [context.inputs[0]] * context.output_count)


_INTEGERS: Final = "int8, int16, int32, int64, uint8, uint16, uint32, uint64"
_COMPLEX: Final = "complex64, complex128"


def register_forms(*prefixes: str) -> Callable[[type[UpdateRule]], type[UpdateRule]]:
    """Define one op of a rule per prefix, such as `ResourceSparseApply`."""

    def make(rule: type[UpdateRule]) -> type[UpdateRule]:
        for prefix in prefixes:
            form = SparseUpdate if "Sparse" in prefix else DenseUpdate
            cell = "resource" if "Resource" in prefix else "Ref(T)"
            facts: dict[str, Any] = {
                "__doc__": rule.__doc__,
                "__module__": rule.__module__,
                "signature": _signature(rule, cell, sparse=form is SparseUpdate),
                "attrs": _attrs(rule, sparse=form is SparseUpdate),
            }
            if prefix == "ResourceApply" and rule.compiled_kinds:
                types = _INTEGERS if "c" in rule.compiled_kinds else f"{_INTEGERS}, {_COMPLEX}"
                facts["compilation"] = CompilerSupport(compiled=True, uncompiled_types=types)
            elif prefix == "ResourceSparseApply":
                facts["compilation"] = CompilerSupport(traces_effects=True)
            type(prefix + rule.__name__, (form, rule), facts)
        return rule

    return make


DENSE_FORMS = ("Apply", "ResourceApply")
ALL_FORMS = (*DENSE_FORMS, "SparseApply", "ResourceSparseApply")


def _cell_names(rule: type[UpdateRule]) -> list[str]:
    return ["var", *rule.slots.split()]


def _signature(rule: type[UpdateRule], cell: str, *, sparse: bool) -> str:
    arguments = [f"{name}: {cell}" for name in _cell_names(rule)]
    for entry in rule.inputs.split():
        name, _, dtype = entry.partition(":")
        if sparse and name in ("grad", "delta"):
            arguments += ["grad: T", "indices: Tindices"]
        else:
            arguments.append(f"{name}: {dtype or 'T'}")
    return ", ".join(arguments) + (" ->" if cell == "resource" else " -> out: Ref(T)")


def _attrs(rule: type[UpdateRule], *, sparse: bool) -> str:
    indices = ", Tindices: {int32, int64}" if sparse else ""
    options = f", {rule.options}" if rule.options else ""
    return f"T: {NUMERIC}{indices}, use_locking: bool = false{options}"


def _options(rule: type[UpdateRule], node: Node) -> Mapping[str, Any]:
    names = [
        declaration.partition(":")[0].strip()
        for declaration in rule.options.split(",")
        if declaration
    ]
    return {name: node.attr(name) for name in names}


def _update_function(
    rule: type[UpdateRule], node: Node, xp: ModuleType
) -> Callable[..., list[Any]]:
    """The rule of a node as a function from cell values and inputs to new cell values."""
    cells, options, update = _cell_names(rule), _options(rule, node), rule.update
    names = [*cells, *(name.partition(":")[0] for name in rule.inputs.split())]

    def updated(*values: Any) -> list[Any]:
        x = SimpleNamespace(xp=xp, **options, **dict(zip(names, values, strict=True)))
        update(x)
        return [getattr(x, name) for name in cells]

    return updated


def _gradient_slot(rule: type[UpdateRule]) -> int:
    """The input slot of the gradient."""
    names = [*_cell_names(rule), *rule.inputs.split()]
    return next(slot for slot, name in enumerate(names) if name in ("grad", "delta"))


def _check_signs(
    rule: type[UpdateRule], options: Mapping[str, Any], xp: ModuleType, *, sparse: bool
) -> Kernel:
    """A check that raises OpError unless the inputs have the signs that the rule requires.

    It is deferred for values that are traced.
    """
    names = [name.partition(":")[0] for name in rule.inputs.split()]
    first = len(_cell_names(rule))
    signs = dict(rule.signs)
    if options.get("multiply_linear_by_lr"):  # then the rule does not divide by lr
        signs["lr"] = "non-negative"
    required = {
        first + slot + (sparse and slot > names.index("grad")): (name, _SIGNS[sign], sign)
        for slot, name in enumerate(names)
        if (sign := signs.get(name)) and (sparse or not rule.signs_of_sparse)
    }

    def check(inputs: Sequence[Any]) -> None:
        for slot, (name, is_valid, sign) in required.items():
            if not holds(xp, is_valid(inputs[slot])):
                raise OpError(f"{name} is not a {sign} scalar: {inputs[slot]}")

    return check


_SIGNS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "positive": lambda value: value > 0,
    "non-negative": lambda value: value >= 0,
    "non-positive": lambda value: value <= 0,
}


def _read_cells(cells: Sequence[Variable]) -> list[Any]:
    values = [cell.read() for cell in cells]
    for cell, value in zip(cells, values, strict=True):
        if value.shape != values[0].shape:
            raise OpError(
                f"var and {cell.name} do not have the same shape: {Shape(values[0].shape)} "
                f"{Shape(value.shape)}"
            )
    return values


class DenseUpdate(UpdateRule, abstract=True):
    """An update of all elements of a variable."""

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        update, count = _update_function(cls, node, xp), len(_cell_names(cls))
        if xp is np:
            update = _in_blocks(update, count)
        grad_at, returns = _gradient_slot(cls), bool(cls.parsed().outputs)
        check = _check_signs(cls, _options(cls, node), xp, sparse=False)

        def apply(step: Any, *inputs: Any) -> Any:
            check(inputs)
            cells = inputs[:count]
            values = _read_cells(cells)
            grad = inputs[grad_at]
            if grad.shape != values[0].shape:
                raise OpError(
                    f"var and grad do not have the same shape: {Shape(values[0].shape)} "
                    f"{Shape(grad.shape)}"
                )
            for cell, new in zip(cells, update(*values, *inputs[count:]), strict=True):
                cell.value = new
            return cells[0] if returns else None

        return apply


def _in_blocks(update: Callable[..., list[Any]], count: int) -> Callable[..., list[Any]]:
    """Apply an elementwise update of `count` cells to parts of them that stay in the cache."""

    def updated(*values: Any) -> list[Any]:
        shape, size = values[0].shape, values[0].size
        if size <= _BLOCK:
            return update(*values)
        flat = [value.reshape(-1) if value.shape == shape else value for value in values]
        new = [np.empty(size, value.dtype) for value in values[:count]]
        for start in range(0, size, _BLOCK):
            part = slice(start, start + _BLOCK)
            changed = update(*(x[part] if x.shape == (size,) else x for x in flat))
            for target, values_of_part in zip(new, changed, strict=True):
                target[part] = values_of_part
        return [target.reshape(shape) for target in new]

    return updated


class SparseUpdate(UpdateRule, abstract=True):
    """An update of the rows of a variable that `indices` lists."""

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        update, count = _update_function(cls, node, xp), len(_cell_names(cls))
        grad_at, returns = _gradient_slot(cls), bool(cls.parsed().outputs)
        check = _check_signs(cls, _options(cls, node), xp, sparse=True)

        def apply(step: Any, *inputs: Any) -> Any:
            check(inputs)
            cells, grad, indices = inputs[:count], inputs[grad_at], inputs[grad_at + 1]
            values = _read_cells(cells)
            _check_rows(xp, values[0], grad, indices)
            before, after = inputs[count:grad_at], inputs[grad_at + 2 :]

            def changed(old: Sequence[Any], gradients: Any) -> list[Any]:
                return update(*old, *before, gradients, *after)

            rounds = _traced_rounds if is_tracing(xp) else _update_rounds
            new = rounds(xp, values, indices, grad, changed)
            for cell, value in zip(cells, new, strict=True):
                cell.value = value
            return cells[0] if returns else None

        return apply


RowUpdate = Callable[[Sequence[Any], Any], list[Any]]


def _update_rounds(
    xp: ModuleType, values: Sequence[Any], indices: Any, grad: Any, changed: RowUpdate
) -> list[Any]:
    """Copies of values whose listed rows are changed, in order where a row is listed again."""
    new = [value.copy() for value in values]
    for positions in _duplicate_free_rounds(indices):
        rows = indices[positions]
        changes = changed([value[rows] for value in new], grad[positions])
        for value, change in zip(new, changes, strict=True):
            value[rows] = change
    return new


def _traced_rounds(
    xp: Any, values: Sequence[Any], indices: Any, grad: Any, changed: RowUpdate
) -> list[Any]:
    """The same in a loop of rounds, each of which drops the changes of all others."""
    from jax import lax

    order = xp.argsort(indices, stable=True)
    ordered = indices[order]
    occurrence = xp.arange(len(order)) - xp.searchsorted(ordered, ordered)
    occurrence = xp.zeros_like(occurrence).at[order].set(occurrence)

    def one_round(state: tuple[Any, ...]) -> tuple[Any, ...]:
        number, *new = state
        changes = changed([value[indices] for value in new], grad)
        rows = xp.where(occurrence == number, indices, len(values[0]))
        pairs = zip(new, changes, strict=True)
        return number + 1, *(x.at[rows].set(change, mode="drop") for x, change in pairs)

    count = occurrence.max(initial=-1) + 1
    start = xp.zeros_like(count), *map(xp.asarray, values)
    return list(lax.while_loop(lambda state: state[0] < count, one_round, start)[1:])


def _check_rows(xp: ModuleType, var: Any, grad: Any, indices: Any) -> None:
    if indices.ndim != 1 or not var.ndim or grad.shape != indices.shape + var.shape[1:]:
        raise OpError(
            f"grad of shape {Shape(grad.shape)} and indices of shape {Shape(indices.shape)} do not "
            f"fit var of shape {Shape(var.shape)}"
        )
    out_of_range = (indices < 0) | (indices >= len(var))
    if not holds(xp, ~out_of_range.any()):
        offset = int(out_of_range.argmax())
        raise OpError(f"Index {indices[offset]} at offset {offset} in indices is out of range")


def _duplicate_free_rounds(indices: Any) -> Iterator[Any]:
    """Groups of positions in `indices` without duplicate rows.

    Each group can be updated at once; updates of the same row stay in order.
    """
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    first = np.searchsorted(ordered, ordered)
    occurrence = np.arange(len(order)) - first
    for number in range(int(occurrence.max()) + 1 if len(occurrence) else 0):
        yield order[occurrence == number]
