from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.ops.families.tensor_list import PersistentList
from cfgraph.ops.opdef.op import OpError
from tests.ops.scenario import Kernels, Sketch


def test_every_version_stays_what_it_was() -> None:
    draw = random.Random(1)
    versions: list[tuple[PersistentList, list[Any]]] = [(PersistentList([]), [])]
    for step in range(5000):
        # mostly the newest, at times any older one: histories branch
        items, wanted = versions[-1] if draw.random() < 0.8 else draw.choice(versions)
        assert items.all() == wanted
        if not wanted or draw.random() < 0.4:
            versions.append((items.push(step), [*wanted, step]))
        elif draw.random() < 0.5:
            versions.append((items.pop(), wanted[:-1]))
        else:
            place = draw.randrange(len(wanted))
            changed = [*wanted[:place], step, *wanted[place + 1 :]]
            versions.append((items.set(place, step), changed))
    for items, wanted in draw.sample(versions, len(versions)):
        assert items.all() == wanted


def test_an_edit_of_the_newest_version_does_not_copy() -> None:
    size = 200_000
    items = PersistentList(list(range(size)))
    start = time.process_time()
    for place in range(10_000):
        items = items.set(place, None)
    assert time.process_time() - start < 1  # copies would take ten


def test_an_old_version_that_stays_does_not_keep_all_later_ones() -> None:
    first = PersistentList([0])
    items = first
    for step in range(10_000):
        items = items.set(0, step)
    chain, version = 0, first
    while version._newer is not None:
        chain, version = chain + 1, version._newer
    assert chain < 100
    assert first.all() == [0]
    assert items.all() == [9_999]


def test_a_long_history_can_be_dropped() -> None:
    first = PersistentList([0] * 100_000)
    items = first
    for step in range(100_000):
        items = items.set(0, step)
    del items
    assert first.all()[0] == 0


# TensorFlow reads or writes outside of its memory here, so there is nothing to compare with.


@pytest.mark.parametrize(
    ("value", "indices"), [([[9.0]], [0]), ([[9.0, 9.0]], [-1]), ([[9.0, 9.0]], [0, 1])]
)
def test_a_scatter_that_does_not_fit_is_refused(value: Any, indices: Any) -> None:
    g = Sketch()
    start = g("TensorListReserve", [2], 2, element_dtype=g.const(1.0).dtype)
    done = g("TensorListScatterIntoExistingList", start, value, indices)
    with pytest.raises(OpError):
        Kernels(g.graph).run([done])


def test_a_scatter_beyond_the_end_makes_the_list_longer() -> None:
    g = Sketch()
    dtype = g.const(1.0).dtype
    start = g("TensorListReserve", [1], 1, element_dtype=dtype)
    done = g("TensorListScatterIntoExistingList", start, [[9.0]], [2])
    [whole] = Kernels(g.graph).run([g("TensorListStack", done, [1], element_dtype=dtype)])
    assert np.array_equal(whole, [[0.0], [0.0], [9.0]])


def test_elements_set_at_the_end_leave_the_shorter_list_as_it_was() -> None:
    g = Sketch()
    dtype = g.const(1.0).dtype
    start = done = g("TensorListReserve", [], 1, element_dtype=dtype)
    for place in (0, 1, 2, 4):
        done = g("TensorListSetItem", done, place, place + 1.0, resize_if_index_out_of_bounds=True)
    lists = [g("TensorListStack", made, [], element_dtype=dtype) for made in (done, start)]
    longer, shorter = Kernels(g.graph).run(lists)
    assert np.array_equal(longer, [1, 2, 3, 0, 5])
    assert np.array_equal(shorter, [0])


def test_negative_places_are_refused() -> None:
    g = Sketch()
    dtype = g.const(1.0).dtype
    start = g("TensorListReserve", [], 1, element_dtype=dtype)
    done = g("TensorListSetItem", start, -1, 5.0, resize_if_index_out_of_bounds=True)
    with pytest.raises(OpError):
        Kernels(g.graph).run([done])


def test_negative_lengths_of_pieces_are_refused() -> None:
    g = Sketch()
    made = g("TensorArrayV3", 2, dtype=g.const(1.0).dtype)
    lengths = np.array([3, -1], np.int64)
    done = g("TensorArraySplitV3", made, [1.0, 2.0], lengths, made.node.output(1))
    with pytest.raises(OpError):
        Kernels(g.graph).run([done])


@pytest.mark.parametrize(
    ("indices", "gradient"), [(1, [0, 1, 0]), ([[1, 2], [1, 0]], [1, 2, 1]), ([], [0, 0, 0])]
)
def test_indices_of_a_gather_have_any_shape(indices: Any, gradient: list[float]) -> None:
    b = cfgraph.Builder()
    x, scalar = b.placeholder("x", "float32", [3]), b.const(np.zeros(0, np.int32))
    elements = b.TensorListFromTensor(x, scalar)
    places = b.const(np.array(indices, np.int32))
    y = b.TensorListGather(elements, places, scalar, element_dtype="float32")
    (dx,) = cfgraph.gradients(b.graph, [y.name], ["x:0"])
    assert cfgraph.Session(b.graph).run(dx, {"x": [1, 2, 3]})[0].tolist() == gradient
