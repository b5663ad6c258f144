"""Scenarios of TensorArrays, in their three versions."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfgraph.ir.dtypes import float32, float64, int32, string
from cfgraph.ir.graph import Output, Versions
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape
from tests.ops.scenario import Runs, Scenario, Sketch, versions


class Array:
    """A TensorArray, each operation on it after the one before."""

    def __init__(
        self, g: Sketch, size: Any, version: str = "V3", dtype: Any = float32, **attrs: Any
    ) -> None:
        self.g, self.version, self.dtype = g, version, dtype
        if not version:
            g.graph.versions = Versions(producer=15)  # later ones have the third version only
        self.handle = g(f"TensorArray{version}", size, dtype=dtype, **attrs)
        self.flow = self.handle.node.output(1) if version == "V3" else g.const(0.0)
        self.last: list[Output] = []

    def op(self, name: str, *inputs: Any, **attrs: Any) -> Output:
        version = "" if name in ("Pack", "Unpack") else self.version
        done = self.g(
            f"TensorArray{name}{version}",
            self.handle,
            *inputs,
            *([] if name == "Close" else [self.flow]),
            controls=self.last,
            **attrs,
        )
        self.last = [done]
        return done

    def write(self, index: Any, value: Any) -> Output:
        return self.op("Write", index, value)

    def read(self, index: Any, **attrs: Any) -> Output:
        return self.op("Read", index, dtype=attrs.get("dtype", self.dtype))

    def gather(self, indices: Any, **attrs: Any) -> Output:
        return self.op("Gather", indices, dtype=self.dtype, **attrs)

    def scatter(self, indices: Any, value: Any) -> Output:
        return self.op("Scatter", indices, value)

    def concat(self, **attrs: Any) -> Output:
        return self.op("Concat", dtype=self.dtype, **attrs)

    def split(self, value: Any, lengths: Any) -> Output:
        return self.op("Split", value, np.asarray(lengths, np.int64))

    def size(self) -> Output:
        return self.op("Size")

    def gradient(self, source: str = "gradients", prepend: Any = None) -> Array:
        made = object.__new__(Array)
        made.g, made.version, made.dtype = self.g, self.version, self.dtype
        if prepend is None:
            name, more = f"TensorArrayGrad{self.version}", []
        else:
            name, more = "TensorArrayGradWithShape", [prepend]
        made.handle = self.g(name, self.handle, self.flow, *more, source=source, controls=self.last)
        made.flow = made.handle.node.output(1) if self.version == "V3" else self.flow
        made.last = [made.handle] if self.version != "V3" else [made.flow]
        return made


def write_and_read(g: Sketch, version: str) -> Runs:
    a = Array(g, 3, version)
    flow = a.write(0, [1.0, 2.0])
    a.write(2, 5.0)
    first, last, size = a.read(0), a.read(2), a.size()
    again = a.read(0)
    return [[flow, first, last, size], [again], [last]]


def write_faults(g: Sketch, version: str) -> Runs:
    runs = []
    for index, value in ((2, 1.0), (-1, 1.0), (0, 1), (g.hidden([0, 1]), 1.0)):
        runs.append([Array(g, 2, version).write(index, value)])
    a = Array(g, 2, version)
    a.write(0, 1.0)
    runs.append([a.write(0, 2.0)])
    a = Array(g, 2, version, clear_after_read=False)
    a.write(0, 1.0)
    a.read(0)
    once_more = a.read(0)
    runs += [[once_more], [a.write(0, 2.0)]]
    a = Array(g, 2, version, element_shape=Shape([2, None]))
    runs += [[a.write(0, [[1.0], [2.0]])], [a.write(1, [1.0])]]
    return runs


def read_faults(g: Sketch, version: str) -> Runs:
    runs = []
    for index in (2, -1):
        a = Array(g, 2, version)
        a.write(0, 1.0)
        runs.append([a.read(index)])
    unwritten = Array(g, 2, version)
    sized = Array(g, 2, version, element_shape=Shape([2]))
    partly = Array(g, 2, version, element_shape=Shape([None]))
    wrong = Array(g, 2, version)
    wrong.write(0, 1.0)
    runs += [[unwritten.read(0)], [sized.read(0)], [sized.read(0)], [partly.read(0)]]
    return [*runs, [wrong.read(0, dtype=float64)]]


def dynamic(g: Sketch, version: str) -> Runs:
    a = Array(g, 0, version, dynamic_size=True)
    a.write(2, 1.0)
    grown = a.size()
    hole = a.read(1)
    b = Array(g, 0, version, dynamic_size=True, element_shape=Shape([]))
    b.scatter([1, 3], [1.0, 2.0])
    all_of_it = b.gather([0, 1, 2, 3])
    c = Array(g, 1, version, dynamic_size=True)
    c.split([1.0, 2.0, 3.0], [1, 0, 2])
    return [[grown], [hole], [all_of_it], [c.size(), c.concat()], [b.read(7)]]


def stacked(g: Sketch, version: str) -> Runs:
    a = Array(g, 3, version)
    a.scatter([2, 0, 1], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    whole = a.gather([0, 1, 2])
    b = Array(g, 2, version)
    b.scatter([0, 1], [1.0, 2.0])
    some = b.gather([1], element_shape=Shape([]))
    c = Array(g, 2, version)
    c.write(0, [1.0])
    c.write(1, [1.0, 2.0])
    uneven = c.gather([0, 1])
    d = Array(g, 2, version)
    d.scatter([0, 1], [1.0, 2.0])
    misfit = d.gather([0], element_shape=Shape([3]))
    return [[whole], [some], [uneven], [misfit]]


def stacked_unwritten(g: Sketch, version: str) -> Runs:
    a = Array(g, 3, version)
    a.write(1, 5.0)
    some = a.gather([0, 1, 2], element_shape=Shape([]))
    b = Array(g, 2, version, element_shape=Shape([None, 3]))
    all_of_it = b.gather([0, 1], element_shape=Shape([2, None]))
    c = Array(g, 1, version, element_shape=Shape([2]))
    other = c.gather([0], element_shape=Shape([3]))
    none = np.zeros(0, np.int32)
    other_rank = Array(g, 1, version, element_shape=Shape([2])).gather(
        none, element_shape=SCALAR_SHAPE
    )
    d = Array(g, 2, version)
    d.gather(none, element_shape=Shape([2]))
    e = Array(g, 2, version)
    e.gather(none, element_shape=Shape([2]))
    unknown = Array(g, 1, version).gather([0])
    return [
        [some],
        [all_of_it],
        [other],
        [other_rank],
        [d.read(1)],
        [e.write(0, [1.0, 2.0, 3.0])],
        [unknown],
    ]


def stacked_nothing(g: Sketch, version: str) -> Runs:
    none = np.zeros(0, np.int32)
    known = Array(g, 0, version, element_shape=Shape([2]))
    unknown = Array(g, 0, version)
    said = Array(g, 0, version)
    return [
        [known.gather(none)],
        [unknown.gather(none)],
        [said.gather(none, element_shape=Shape([3]))],
        [Array(g, 0, version).gather(none, element_shape=Shape([None]))],
        [Array(g, 0, version).concat(element_shape_except0=Shape([2]))],
        [Array(g, 0, version).concat()],
        [Array(g, 0, version).scatter(none, np.zeros([0, 2], np.float32))],
        [Array(g, 0, version).split(np.zeros([0, 2], np.float32), [])],
        [Array(g, 1, version).gather(g.hidden(0))],
    ]


def scatter_faults(g: Sketch, version: str) -> Runs:
    return [
        [Array(g, 2, version).scatter(g.hidden([2]), [1.0])],
        [Array(g, 2, version).scatter(g.hidden([-1]), [1.0])],
        [Array(g, 2, version).scatter(g.hidden([0, 1]), g.hidden([1.0]))],
        [Array(g, 2, version).scatter(g.hidden([0]), g.hidden(1.0))],
        [Array(g, 2, version).scatter(g.hidden([0, 0]), [1.0, 2.0])],
        [Array(g, 2, version).scatter([0], [1])],
        [Array(g, 2, version, element_shape=Shape([3])).scatter([0], g.hidden([[1.0]]))],
    ]


def concat_and_split(g: Sketch, version: str) -> Runs:
    a = Array(g, 3, version)
    a.split([[1.0], [2.0], [3.0]], [1, 0, 2])
    whole = a.concat()
    b = Array(g, 2, version)
    b.split([1.0, 2.0, 3.0], [2, 1])
    part = b.read(0)
    c = Array(g, 2, version)
    c.write(0, 1.0)
    c.write(1, 2.0)
    d = Array(g, 2, version)
    d.write(0, [1.0])
    d.write(1, [[1.0]])
    e = Array(g, 1, version)
    e.write(0, [[1.0, 2.0]])
    return [
        [whole, whole.node.output(1)],
        [part],
        [c.concat()],
        [d.concat()],
        [e.concat(element_shape_except0=Shape([3]))],
        [Array(g, 2, version).split(g.hidden([1.0, 2.0]), [1, 2])],
        [Array(g, 2, version).split(g.hidden([1.0, 2.0]), [1, 0])],
        [Array(g, 3, version).split([1.0, 2.0], [1, 1])],
        [Array(g, 2, version).split(g.hidden(1.0), [1, 1])],
    ]


def closing(g: Sketch, version: str) -> Runs:
    def closed() -> Array:
        a = Array(g, 2, version)
        a.write(0, 1.0)
        a.op("Close")
        a.last = [a.last[0].node]  # type: ignore[list-item]
        return a

    return [
        [closed().last[0]],
        [closed().read(0)],
        [closed().write(1, 1.0)],
        [closed().size()],
        [closed().gather([0])],
    ]


def gradients_add_up(g: Sketch, version: str) -> Runs:
    a = Array(g, 3, version, element_shape=UNKNOWN_SHAPE, clear_after_read=False)
    a.write(0, [1.0, 2.0])
    a.write(1, [3.0, 4.0])
    d = a.gradient()
    d.write(0, [1.0, 1.0])
    d.write(0, [0.5, 0.25])
    summed, zeros, absent = d.read(0), d.read(1), d.read(2)
    e = Array(g, 2, version, clear_after_read=False)
    e.write(0, [1.0])
    same = e.gradient()
    same.write(0, [2.0])
    e.last = same.last
    found = e.gradient().read(0)
    other = e.gradient("another").read(0)
    misfit = e.gradient("third")
    misfit.write(0, [1.0])
    return [[summed, zeros], [absent], [found], [other], [misfit.write(0, [1.0, 2.0])]]


def gradient_of_a_read_element(g: Sketch, version: str) -> Runs:
    a = Array(g, 2, version)
    a.write(0, [1.0, 2.0])
    a.read(0)
    d = a.gradient()
    return [[d.read(0)]]


def gradient_ends_growth(g: Sketch, version: str) -> Runs:
    a = Array(g, 1, version, dynamic_size=True)
    a.write(0, 1.0)
    d = a.gradient()
    a.last = d.last
    return [[a.write(1, 2.0)], [d.size()], [d.write(1, 2.0)]]


def gradient_of_a_stack(g: Sketch, version: str) -> Runs:
    a = Array(g, 2, version)
    a.scatter([0, 1], [[1.0, 2.0], [3.0, 4.0]])
    whole = a.gather([0, 1])
    a.last = [whole]
    d = a.gradient()
    d.scatter([0, 1], [[1.0, 1.0], [2.0, 2.0]])
    return [[whole, d.gather([0, 1])]]


def gradients_put_together(g: Sketch, version: str) -> Runs:
    """As many parts of a gradient array are concatenated as the array was split into."""
    runs = []
    for size in (0, 2):
        a = Array(g, size, version, dynamic_size=True, clear_after_read=False)
        a.split([1.0, 2.0], [1, 1])
        a.write(2, [3.0])
        d = a.gradient()
        for index in range(3):
            d.write(index, [float(index)])
        runs += [[d.concat()], [d.size()]]
    a = Array(g, 0, version, dynamic_size=True)
    a.split([1.0, 2.0, 3.0], [3])
    a.write(1, [4.0])
    d = a.gradient()
    d.split([1.0, 2.0, 3.0, 4.0], [3, 1])
    return [*runs, [d.concat()]]


def gradient_with_shape(g: Sketch) -> Runs:
    a = Array(g, 2, "V3", clear_after_read=False, element_shape=Shape([2]))
    a.write(0, [1.0, 2.0])
    d = a.gradient(prepend=[3])
    zeros, unwritten = d.read(0), d.read(1)
    b = Array(g, 2, "V3", clear_after_read=False)
    b.write(0, [1.0, 2.0])
    e = b.gradient(prepend=[3])
    e.write(0, np.ones([3, 2], np.float32))
    return [[zeros, unwritten], [e.read(0)], [b.gradient(prepend=[1]).write(0, [1.0, 2.0])]]


def identical_shapes(g: Sketch) -> Runs:
    a = Array(g, 3, "V3", identical_element_shapes=True)
    a.write(0, [1.0])
    zeros = a.read(1)
    return [[zeros], [a.write(2, [1.0, 2.0])]]


def several_types(g: Sketch) -> Runs:
    a = Array(g, 2, "V3", dtype=string, element_shape=Shape([]))
    a.scatter([0], ["x"])
    both = a.gather([0, 1])
    b = Array(g, 2, "V3", dtype=string)
    b.split(["a", "bc", "d"], [1, 2])
    c = Array(g, 1, "V3", dtype=int32)
    c.write(0, 7)
    d = Array(g, 2, "V3", dtype=string)
    d.scatter([0, 1], ["p", "q"])
    return [[both], [b.concat()], [c.read(0)], [d.read(1)]]


def pack_and_unpack(g: Sketch) -> Runs:
    a = Array(g, 2, "")
    a.op("Unpack", [[1.0], [2.0]])
    whole = a.op("Pack", dtype=float32)
    wrong = Array(g, 2, "").op("Unpack", g.hidden([1.0]))
    scalar = Array(g, 2, "").op("Unpack", g.hidden(1.0))
    dynamic = Array(g, 1, "", dynamic_size=True)
    dynamic.op("Unpack", [1.0, 2.0, 3.0])
    marked = Array(g, 2, "", dynamic_size=True, clear_after_read=False)
    marked.op("Unpack", [1.0, 2.0])
    marked.write(2, 3.0)
    grad = marked.gradient()
    for index in range(3):
        grad.write(index, float(index))
    return [
        [whole],
        [wrong],
        [scalar],
        [dynamic.op("Pack", dtype=float32)],
        [grad.op("Pack", dtype=float32)],
    ]


def bad_sizes(g: Sketch) -> Runs:
    return [[g("TensorArrayV3", g.hidden(size), dtype=float32).node] for size in ([1], -1, 0)]


SCENES: list[Scenario] = [
    *(
        scene
        for family in (
            write_and_read,
            write_faults,
            read_faults,
            dynamic,
            stacked,
            stacked_unwritten,
            stacked_nothing,
            scatter_faults,
            concat_and_split,
            closing,
            gradients_add_up,
            gradient_of_a_read_element,
            gradient_ends_growth,
            gradient_of_a_stack,
            gradients_put_together,
        )
        for scene in versions(family, "V3", "V2", "")
    ),
    gradient_with_shape,
    identical_shapes,
    several_types,
    pack_and_unpack,
    bad_sizes,
]
