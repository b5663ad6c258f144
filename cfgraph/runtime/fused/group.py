"""A group of elementwise nodes as a callable: one launch for each shape among its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.op import KERNEL_FAILURES, Kernel, lookup
from cfgraph.runtime.fused.expressions import Dims, Elements, Recorder, Statement, c_type, refuse
from cfgraph.runtime.fused.kernel_text import (
    FLAT,
    GIVEN,
    ONE,
    THREADS,
    Parameter,
    Pattern,
    Way,
    arguments,
    kernel_text,
    merged,
    source_of,
)
from cfgraph.runtime.fused.namespace import ELEMENTWISE
from cfgraph.runtime.fused.ready import Kept, Machine, Ready, Run, runner

NAME: Final = "cfgraph_fused"
# signatures of a group that are remembered; the oldest goes first
KEPT: Final = 64
# places beyond this need 64 bits
_NARROW: Final = 1 << 30
_MOST_BLOCKS: Final = 4096


class Group:
    """Elementwise nodes as one kernel; called with the values of `inputs`, it gives `outputs`.

    Where the inputs are all known to the host, or do not fit what kernels can be generated for, the
    nodes' own kernels run one by one: `plain`, in the order of the nodes. `failing` is then the
    node that an error came from, and `refused` says why, the last time. What the nodes read and
    `known` says stands in the source.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        plain: Sequence[Kernel],
        machine: Machine,
        known: Mapping[Output, Any] | None = None,
    ) -> None:
        self.nodes, self.inputs, self.outputs = nodes, inputs, outputs
        self.machine = machine
        self.known = dict(known or {})
        self.failing: Node | None = None
        self.refused = ""
        self._plain = plain
        self._types = [_numpy_type(item) for item in inputs]
        self._array = machine.array
        self._ready: dict[Any, Run] = {}

    def __call__(self, *values: Any) -> Any:
        """The outputs: one bare, several as a tuple."""
        array = self._array
        key = tuple(
            [(item.shape, item.strides) if type(item) is array else item.shape for item in values]
        )
        try:
            run = self._ready[key]
        except KeyError:
            run = self._made(values)
            while len(self._ready) >= KEPT:
                del self._ready[next(iter(self._ready))]
            self._ready[key] = run
        return run(values)

    def prepare(self, values: Sequence[Any]) -> int:
        """Generate what such values need; how many launches, 0 where nodes run one by one."""
        try:
            launches, kept = self._launches(values)
        except (CfgraphError, AttributeError, *KERNEL_FAILURES):
            return 0
        return len(launches) + (not launches and bool(kept))

    def _made(self, values: Sequence[Any]) -> Run:
        """What runs a signature that is new."""
        array, to_device = self._array, self.machine.to_device
        if not any(type(value) is array for value in values):
            return self._one_by_one
        over = {at for at, item in enumerate(values) if type(item) is not array and item.ndim}

        def moved(values: Sequence[Any]) -> Sequence[Any]:
            return [to_device(item) if at in over else item for at, item in enumerate(values)]

        try:
            run = runner(self.machine, *self._launches(moved(values)))
        except MemoryError:
            raise
        except Exception as error:  # a compiler may raise anything of its own
            self.refused = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            return self._one_by_one
        return (lambda values: run(moved(values))) if over else run

    def _one_by_one(self, values: Sequence[Any]) -> Any:
        """The outputs by the nodes' own kernels."""
        found = {**self.known, **dict(zip(self.inputs, values, strict=True))}
        for node, kernel in zip(self.nodes, self._plain, strict=True):
            try:
                found[node.output()] = kernel(*(found[item] for item in node.inputs))
            except Exception:
                self.failing = node
                raise
        results = tuple(found[item] for item in self.outputs)
        return results[0] if len(results) == 1 else results

    def _launches(self, given: Sequence[Any]) -> tuple[list[Ready], list[Kept | None]]:
        recorder, results = self.written([item.shape for item in given])
        kept: list[Kept | None] = []
        shapes: dict[Dims, list[int]] = {}
        for place, result in enumerate(results):
            if not isinstance(result, Elements):
                kept.append(Kept(value=result))
            elif result.name in recorder.statements:
                kept.append(None)
                shapes.setdefault(result.shape, []).append(place)
            else:
                source, shape = recorder.views[result.name]
                if shape != given[source].shape:
                    refuse("an input in another shape")
                kept.append(Kept(place=source))
        return [
            self._launch(recorder, [(place, results[place]) for place in places], shape, given)
            for shape, places in shapes.items()
        ], kept

    def written(self, shapes: Sequence[Dims]) -> tuple[Recorder, list[Any]]:
        """The expressions of the outputs for inputs of these shapes."""
        recorder = Recorder()
        found: dict[Output, Any] = {
            item: recorder.lifted(value) for item, value in self.known.items()
        }
        for place, (item, dtype) in enumerate(zip(self.inputs, self._types, strict=True)):
            found[item] = recorder.input(place, dtype, shapes[place])
        for node in self.nodes:
            op = lookup(node.op)
            assert op is not None
            kernel = op.bind(node, ELEMENTWISE)
            found[node.output()] = kernel(*(found[item] for item in node.inputs))
        return recorder, [found[item] for item in self.outputs]

    def _launch(
        self,
        recorder: Recorder,
        outputs: Sequence[tuple[int, Elements]],
        shape: Dims,
        given: Sequence[Any],
    ) -> Ready:
        """The launch that makes all outputs of one shape."""
        statements, names = _cone(recorder, [result.name for _, result in outputs])
        made = tuple((place, shape, result.dtype) for place, result in outputs)
        count = int(np.prod(shape, dtype=np.int64))
        if not count:
            return Ready(None, 0, (), (), made, ())
        array = self.machine.array
        places = [recorder.views[name][0] for name in names]
        here = [type(given[place]) is array for place in places]
        walked = [
            at
            for at, (name, there) in enumerate(zip(names, here, strict=True))
            if there and recorder.views[name][1]
        ]
        strides = [
            _strides(given[places[at]].reshape(recorder.views[names[at]][1]), shape)
            for at in walked
        ]
        sizes, over = merged(shape, strides)
        steps_of = dict(zip(walked, over, strict=True))
        parameters = tuple(
            Parameter(
                name,
                c_type(self._types[place]),
                _way(sizes, steps_of[at]) if at in steps_of else ONE if there else GIVEN,
            )
            for at, (name, place, there) in enumerate(zip(names, places, here, strict=True))
        )
        reach = max([count, *(_reach(sizes, steps) for steps in over)])
        pattern = Pattern(
            parameters,
            statements,
            tuple((result.name, c_type(result.dtype)) for _, result in outputs),
            len(sizes),
            reach > _NARROW,
        )
        index = np.int64 if pattern.wide else np.int32
        behind = tuple(
            index(sizes[item.axis] if item.what == "size" else steps_of[item.place][item.axis])
            for item in arguments(pattern)
            if item.what in ("size", "stride")
        )
        return Ready(
            self.machine.function(source_of(kernel_text(pattern, NAME)), NAME),
            min(-(-count // THREADS), _MOST_BLOCKS),
            (index(count),),
            tuple(
                (place, _seen(parameter))
                for place, parameter in zip(places, parameters, strict=True)
            ),
            made,
            behind,
        )


def _numpy_type(item: Output) -> Any:
    assert item.dtype is not None
    return item.dtype.numpy


def _cone(recorder: Recorder, wanted: Sequence[str]) -> tuple[tuple[Statement, ...], list[str]]:
    """The statements that some values need, in order, and the inputs that they read."""
    found, queue = set(wanted), list(wanted)
    while queue:
        statement = recorder.statements.get(queue.pop())
        for name in statement.reads if statement else ():
            if name not in found:
                found.add(name)
                queue.append(name)
    statements = tuple(item for name, item in recorder.statements.items() if name in found)
    return statements, [name for name in recorder.views if name in found]


def _strides(array: Any, shape: Dims) -> Dims:
    """The strides of an array, in elements, over the shape that it broadcasts to."""
    width = array.itemsize
    own = [
        0 if size == 1 else step // width
        for size, step in zip(array.shape, array.strides, strict=True)
    ]
    return (*(0,) * (len(shape) - len(own)), *own)


def _way(sizes: Dims, steps: Dims) -> Way:
    """How elements are found: each at its place, one for all, or by the strides that count."""
    if not any(steps):
        return ONE
    place = 1
    for size, step in zip(reversed(sizes), reversed(steps), strict=True):
        if step != place:
            return tuple(step != 0 for step in steps)
        place *= size
    return FLAT


def _reach(sizes: Dims, steps: Dims) -> int:
    return sum((size - 1) * abs(step) for size, step in zip(sizes, steps, strict=True))


def _seen(item: Parameter) -> Any:
    """How the bits of a value are seen: a half-width float is 16 bits to C."""
    if item.way != GIVEN:
        return None
    return np.dtype(np.uint16) if item.kind.half else None
