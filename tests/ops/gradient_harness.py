"""The gradient of one op by cfgraph, and what its case file says of it.

In addition to `CASES`, a case file may contain, by op:

- `SMOOTH`, where finite differences are taken of the float inputs: an interval for all of them, or
  one for each, or a function of (random, the inputs of a case) that gives all inputs. Other ops are
  taken at the inputs of their cases, moved a little, so that none is on a corner.
- `OUR_GRADIENT`, why TensorFlow has no such gradient, or another one: it is not compared. Under
  `op:1` only as far as it comes from output 1, under `op by 1` only that by input 1, which it has
  not; under `op complex`, `op half` that of such numbers, under `op broadcast` where shapes differ.
- `NO_GRADIENT`, why an op from floats to floats has none, though it is not flat.
- `ESTIMATE`, why its gradient is not its slope.
- `NO_FORMULA`, the float inputs by which it has none.
- `RESERVED`, the float outputs through which no gradient comes back, which we refuse.
- `FAILS`, parts of what TensorFlow says where it fails, for some cases of an op.
- `POLES`, why infinity may be NaN.
- `NO_SECOND`, why its gradient has no gradient.
- `OUR_SECOND`, why TensorFlow's gradient has no gradient, and ours has.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.opdef.gradient_api import no_gradient, zero_gradient
from cfgraph.ops.opdef.op import lookup
from cfgraph.passes.derivatives import gradients
from cfgraph.runtime.session import Session
from tests.ops import harness
from tests.ops.harness import Case, all_cases, node_of, type_of

MOST: Final = 6  # cases of an op in a family
Arrays = list[Any]


@cache
def notes(name: str) -> dict[str, Any]:
    """The notes of a name in the case files, by op."""
    found: dict[str, Any] = {}
    for module in harness.modules().values():
        found |= getattr(module, name, {})
    return found


def is_smooth_type(dtype: DType | None) -> bool:
    """True for real and complex floats; of eight bits there is not much to compare."""
    return dtype is not None and dtype.base.kind in ("float", "complex") and width(dtype) > 1


def width(dtype: DType) -> int:
    """The bytes of one number."""
    bytes_: int = dtype.base.numpy.itemsize
    return bytes_


@cache
def float_inputs(item: Case) -> list[int]:
    """The inputs that may have a gradient."""
    return [i for i in range(len(item.inputs)) if is_smooth_type(type_of(item, i))]


def arguments(item: Case) -> list[int]:
    """The inputs by which there is a gradient."""
    unknown = notes("NO_FORMULA").get(item.op, ())
    return [i for i in float_inputs(item) if i not in unknown]


@cache
def float_outputs(item: Case) -> list[int]:
    """The outputs with an upstream gradient."""
    closed = notes("RESERVED").get(item.op, ())
    types = output_types(item)
    return [i for i, dtype in enumerate(types) if is_smooth_type(dtype) and i not in closed]


@cache
def output_types(item: Case) -> Sequence[DType]:
    """The types of all outputs."""
    return node_of(item).output_types or []


def is_ours(item: Case, ys: Sequence[int]) -> bool:
    """True where TensorFlow has no gradient, or another one."""
    keys = {item.op, *(f"{item.op}:{y}" for y in ys)}
    if any(type_of(item, i).is_complex for i in float_inputs(item)):
        keys.add(f"{item.op} complex")
    if len({item.inputs[i].shape for i in float_inputs(item)}) > 1:
        keys.add(f"{item.op} broadcast")
    if is_narrow(item):
        keys.add(f"{item.op} half")
    keys |= {f"{item.op} {a.decode()}" for a in item.attrs.values() if isinstance(a, bytes)}
    return not keys.isdisjoint(notes("OUR_GRADIENT"))


def is_flat(op: str) -> bool:
    """True for an op that says it has no gradient."""
    found = lookup(op)
    return found is not None and found.gradient in (zero_gradient, no_gradient)


def is_random(op: str) -> bool:
    """True for an op that draws numbers."""
    found = lookup(op)
    return found is not None and found.effects.random


def has_gradient(op: str) -> bool:
    """True for an op with a gradient, be it none."""
    found = lookup(op)
    return found is not None and found.gradient is not None and op not in notes("NO_GRADIENT")


def float_cases(keep: Callable[[str], bool]) -> dict[str, list[Case]]:
    """Cases from floats to floats, by family and op; not all where there are many."""
    return {name: items for name, items in _float_cases().items() if keep(items[0].op)}


@cache
def _float_cases() -> dict[str, list[Case]]:
    groups: dict[str, list[Case]] = {}
    modules = harness.modules()
    for item in all_cases():
        has_slope = not getattr(modules[item.family], "VALUES_ONLY", False)
        if has_slope and not item.error and float_inputs(item) and float_outputs(item):
            groups.setdefault(f"{item.family}-{item.op}", []).append(item)
    return {name: _spread(items) for name, items in groups.items()}


def _spread(items: list[Case]) -> list[Case]:
    """A few of many cases: one of a half-width type, and the others in even steps."""
    half = [item for item in items if is_narrow(item)]
    full = [item for item in items if item not in half]
    if len(full) > MOST:
        full = [full[i] for i in np.linspace(0, len(full) - 1, MOST).astype(int)]
    return full + half[:1]


@cache
def is_narrow(item: Case) -> bool:
    """True if a float, complex or not, has less than 32 bits."""
    types = [type_of(item, i) for i in float_inputs(item)]
    types += [dtype for dtype in output_types(item) if is_smooth_type(dtype)]
    return any(width(dtype) < 4 for dtype in types)


def random_of(item: Case) -> np.random.Generator:
    """Random numbers that are the same in each run."""
    return np.random.default_rng(zlib.crc32(f"{item.label} {item.place}".encode()))


def random_like(random: np.random.Generator, array: Any) -> Any:
    """Normal numbers of the shape and type of an array."""
    numbers = random.normal(size=array.shape)
    if array.dtype.kind == "c":
        numbers = numbers + 1j * random.normal(size=array.shape)
    return np.asarray(numbers).astype(array.dtype)


@dataclass
class Derived:
    """A graph of one op with its gradients: for each float input a name or None.

    Placeholders: `x0`, … the inputs, `dy0`, … the gradients of the float outputs `ys`. `second` has
    the gradients of the sum of `w0`, … times the first ones, by all of `x` and `dy`.
    """

    item: Case
    graph: Graph
    ys: list[int]
    first: dict[str, str | None]
    second: dict[str, str | None]

    def run(self, names: Iterable[str], feeds: dict[str, Any]) -> Arrays:
        """Values of tensors of the graph; feeds of what it does not have are left out."""
        present = {key: value for key, value in feeds.items() if key.split(":")[0] in self.graph}
        return Session(self.graph).run(list(names), present)

    def values(self, names: dict[str, str | None], feeds: dict[str, Any]) -> dict[str, Any]:
        """The values of gradients, those that are None left out."""
        known = {key: name for key, name in names.items() if name is not None}
        return dict(zip(known, self.run(known.values(), feeds), strict=True)) if known else {}


def derive(item: Case, ys: Sequence[int], *, known: bool, second: bool = False) -> Derived:
    """Differentiate a case. `known`: shapes and what are no floats are known before the run."""
    graph = Graph()
    floats = float_inputs(item)
    inputs = []
    for i, array in enumerate(item.inputs):
        dtype = type_of(item, i)
        if known and i not in floats:
            made = graph.add("Const", name=f"x{i}", dtype=dtype, value=TensorValue(array))
        else:
            shape = Shape(array.shape) if known else UNKNOWN_SHAPE
            made = graph.add("Placeholder", name=f"x{i}", dtype=dtype, shape=shape)
        inputs.append(made.output())
    node = graph.add(item.op, *inputs, name="op", attrs=item.attrs)
    seeds = [_placeholder(graph, f"dy{i}", node.output(i).dtype) for i in ys]
    xs = [f"x{i}:0" for i in arguments(item)]
    found = gradients(graph, [f"op:{i}" for i in ys], xs, grad_ys=seeds)
    first = dict(zip(xs, found, strict=True))
    return Derived(item, graph, list(ys), first, _second(graph, first, seeds) if second else {})


def _second(graph: Graph, first: dict[str, str | None], seeds: list[str]) -> dict[str, str | None]:
    known = {weight(key): name for key, name in first.items() if name is not None}
    if not known:
        return {}
    for name, tensor in known.items():
        _placeholder(graph, name.removesuffix(":0"), graph.tensor(tensor).dtype)
    by = [*first, *seeds]
    found = gradients(graph, [*known.values()], by, grad_ys=[*known])
    return dict(zip(by, found, strict=True))


def weight(x: str) -> str:
    """The name of the weight of the first gradient by an input."""
    return x.replace("x", "w")


def _placeholder(graph: Graph, name: str, dtype: DType | None) -> str:
    return graph.add("Placeholder", name=name, dtype=dtype, shape=UNKNOWN_SHAPE).output().name


def feeds_of(item: Case, ys: Sequence[int], outputs: Arrays) -> dict[str, Any]:
    """Values for the placeholders: those of the case, and random gradients and weights.

    The outputs of a random op are fed as well.
    """
    random = random_of(item)
    feeds = {f"x{i}:0": array for i, array in enumerate(item.inputs)}
    feeds |= {f"dy{i}:0": random_like(random, np.asarray(outputs[i])) for i in ys}
    if is_random(item.op):
        feeds |= {f"op:{i}": np.asarray(outputs[i]) for i in ys}
    return feeds


def weights_of(item: Case, first: dict[str, Any]) -> dict[str, Any]:
    """Random weights for the first gradients that there are."""
    random = random_of(item)
    return {weight(key): random_like(random, np.asarray(value)) for key, value in first.items()}
