"""Each op that jax traces runs in an executable of XLA, for several types and shapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import CfgraphError, ExecutionError
from cfgraph.ir import registry
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Versions
from cfgraph.ir.shapes import Shape
from cfgraph.ops.opdef.op import lookup
from tests.backends.xla.test_traceable import representatives
from tests.ops.harness import Case, all_cases, case, node_of

pytestmark = pytest.mark.filterwarnings("ignore:.*[cC]ast")
pytest.importorskip("jax", reason="needs the extra `xla`")

TYPES: Final = ("float32", "float64", "int32", "int64", "float16", "complex64", "uint8", "bool")
MANY: Final = 3
PRODUCER: Final = 1882
Inputs = list[Any]
# ops of which no case is recorded, and why
WITHOUT_CASE: Final = {
    "DebugGradientRefIdentity": "takes a reference",
    "FakeParam": "stands for a value that nothing computes",
    "Placeholder": "is fed",
    "PlaceholderV2": "is fed",
    "RefIdentity": "takes a reference",
    "RefSelect": "takes references",
    "_ArrayToList": "is added by TensorFlow while it runs",
    "_ListToArray": "is added by TensorFlow while it runs",
}
# ops that no cluster contains
OUTSIDE: Final = {"NoOp": "has no result", "PlaceholderWithDefault": "may be fed"}
# ops whose values are those of another library, up to the signs and order of vectors
UNDETERMINED: Final = ("XlaSelfAdjointEig", "XlaSvd")
X: Final = np.linspace(-2, 3, 24, dtype=np.float32).reshape(2, 3, 4)
IMAGE: Final = np.linspace(-1, 1, 32, dtype=np.float32).reshape(1, 4, 4, 2)
FILTER: Final = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 1, 2, 3)
CHANGE: Final = np.linspace(-1, 1, 36, dtype=np.float32).reshape(1, 3, 4, 3)
STRIDES: Final = {"strides": [1, 1, 1, 1], "padding": "VALID"}
MORE: Final = [
    case("ToBool", [X]),
    case("ToBool", [np.float32(0)]),
    case("TopK", [X], {"k": 2}),
    case("TileGrad", [np.concatenate([X, X], 1), np.array([1, 2, 1], np.int32)]),
    case("Conv2DBackpropInputV2", [IMAGE, FILTER, CHANGE], STRIDES),
    case("Conv2DBackpropFilterV2", [IMAGE, FILTER, CHANGE], STRIDES),
]


def traceable() -> list[str]:
    """The ops, without those that call functions, which are in no cluster."""
    ops = ((name, lookup(name)) for name in registry.op_names())
    return sorted(
        name
        for name, op in ops
        if op is not None and op.compilation.traceable and not op.calls.kind
    )


def constant_slots(item: Case) -> frozenset[int]:
    op = lookup(item.op)
    assert op is not None
    return op.constant_slots(node_of(item))


def graph_of(item: Case, inputs: Inputs) -> tuple[Graph, dict[str, Any], list[str]]:
    """A graph that feeds the inputs, its feeds, and its fetches; two nodes follow the op."""
    graph, ports, feeds = Graph(), [], dict[str, Any]()
    constant = constant_slots(item)
    for slot, value in enumerate(map(np.asarray, inputs)):
        if slot in constant:
            content = TensorValue(value)
            node = graph.add("Const", name=f"c{slot}", value=content, dtype=content.dtype)
        else:
            dtype, shape = DType.from_numpy(value.dtype), Shape(value.shape)
            node = graph.add("Placeholder", name=f"p{slot}", dtype=dtype, shape=shape)
            feeds[f"p{slot}:0"] = value
        ports.append(node.output())
    attrs = _attrs(item, inputs)
    made = graph.add(item.op, *ports, name="y", attrs=attrs)
    graph.versions = Versions(producer=PRODUCER)
    for port in range(made.output_count or 0):
        pair = graph.add("Pack", made.output(port), made.output(port), axis=0)
        graph.add("Pack", pair, pair, name=f"z{port}", axis=0)
    return graph, feeds, [f"z{port}:0" for port in range(made.output_count or 0)]


def _attrs(item: Case, inputs: Inputs) -> dict[str, Any]:
    """The attributes of a case, for inputs of other types."""
    old = [DType.from_numpy(np.asarray(each).dtype) for each in item.inputs]
    new = [DType.from_numpy(np.asarray(each).dtype) for each in inputs]
    types = dict(zip(old, new, strict=True))

    def changed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(changed, value))
        return types.get(value, value) if isinstance(value, DType) else value

    return {key: changed(value) for key, value in node_of(item).attrs.items()}


def variants(items: list[Case]) -> Iterator[tuple[str, Case, Inputs]]:
    """Inputs of other types, then without elements, then scalars, each with what it is."""
    for item in items:
        yield str(np.asarray(item.inputs[0]).dtype) if item.inputs else "", item, [*item.inputs]
    for item in items:
        constant = constant_slots(item)
        free = [slot for slot in range(len(item.inputs)) if slot not in constant]
        if not free:
            continue
        first = np.asarray(item.inputs[free[0]]).dtype
        for name in TYPES:
            new = [
                np.asarray(each).astype(name)
                if slot in free and np.asarray(each).dtype == first
                else each
                for slot, each in enumerate(item.inputs)
            ]
            yield name, item, new
        for chosen in (free, free[:1]):
            yield "empty", item, _replaced(item, chosen, lambda x: x[:0] if x.ndim else x)
        for chosen in (free, free[:1]):
            yield "scalar", item, _replaced(item, chosen, lambda x: x.reshape(-1)[:1].reshape(()))


def _replaced(item: Case, slots: list[int], change: Any) -> Inputs:
    return [
        change(np.asarray(each)) if slot in slots and np.asarray(each).size else each
        for slot, each in enumerate(item.inputs)
    ]


def accepted(name: str) -> Iterator[tuple[str, Case, Inputs, Any]]:
    """Up to three types, an empty and a scalar input that the token engine takes; the values."""
    found = set[str]()
    for label, item, inputs in variants(cases(name)):
        is_type = label not in ("empty", "scalar")
        types = found.difference(("empty", "scalar"))
        if label in found or (is_type and len(types) == MANY) or not _is(label, item, inputs):
            continue
        try:
            graph, feeds, fetches = graph_of(item, inputs)
            values = cfgraph.Session(graph, engine="tokens").run(fetches, feeds)
        except (CfgraphError, ValueError, TypeError):
            continue
        found.add(label)
        yield label, item, inputs, values


def cases(name: str) -> list[Case]:
    return representatives().get(name) or [item for item in MORE if item.op == name]


def _is(label: str, item: Case, inputs: Inputs) -> bool:
    """True if inputs that are to be empty, or scalar, are."""
    constant = constant_slots(item)
    free = [np.asarray(each) for slot, each in enumerate(inputs) if slot not in constant]
    if label == "empty":
        return any(not each.size for each in free)
    return label != "scalar" or any(not each.ndim for each in free)


def test_each_traceable_op_has_a_case() -> None:
    assert [name for name in traceable() if not cases(name)] == sorted(WITHOUT_CASE)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*traceable()}.difference(WITHOUT_CASE, OUTSIDE)))
def test_a_traceable_op_runs_in_an_executable(name: str) -> None:
    ran = 0
    for label, item, inputs, wanted in accepted(name):
        graph, feeds, fetches = graph_of(item, inputs)
        session = cfgraph.Session(graph, engine="xla")
        found = session.run(fetches, feeds)
        clusters = session.cluster_runner.clusters.values()
        (cluster,) = [x for x in clusters if name in {node.op for node in x.line.order}]
        refused = [each.refused for each in cluster.compilations]
        assert cluster.compiled_times, (label, cluster.refused, refused)
        assert not cluster.fused, (label, refused)
        for one, other in zip(found, () if name in UNDETERMINED else wanted, strict=False):
            _require_alike(label, one, other)
        ran += 1
    assert ran


def _require_alike(label: str, found: Any, wanted: Any) -> None:
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), label
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, wanted, label)
        return
    tolerance = 2e-2 if found.dtype.itemsize == 2 else 1e-4
    wide = complex if found.dtype.kind == "c" else float
    np.testing.assert_allclose(found.astype(wide), wanted.astype(wide), tolerance, tolerance)


# 500 TiB, which no machine has
PADDED = """
x = Placeholder() {dtype=float32, shape=[9,9]}
zero = Const() {dtype=float32, value=float32[]:0}
edge = Const() {dtype=int32, value=int32[2]:[1,1]}
interior = Const() {dtype=int32, value=int32[2]:[2147483646,1000]}
tanh = Tanh(x)
pad = XlaPad(tanh, zero, edge, edge, interior) {T=float32, Tindices=int32}
y = Tanh(pad)
"""


@pytest.mark.slow
def test_a_result_that_xla_has_no_memory_for_is_an_error_with_a_place() -> None:
    errors = []
    for engine in ("tokens", "xla"):
        session = cfgraph.Session(cfgraph.loads(PADDED.encode(), "graph"), engine=engine)
        with pytest.raises(ExecutionError, match="out of memory") as caught:
            session.run("y", {"x": np.ones((9, 9), np.float32)})
        errors.append(str(caught.value).replace("cluster_0/", ""))
    assert errors[0] == errors[1]


IMAGES: Final = np.linspace(-1, 1, 96, dtype=np.float32).reshape(1, 6, 8, 2)
RESIZED: Final = [
    case("ResizeBicubic", [IMAGES, np.array([9, 5], np.int32)]),
    case("ResizeArea", [IMAGES, np.array([3, 5], np.int32)]),
    case("ResizeBilinearGrad", [IMAGES, np.zeros((1, 3, 5, 2), np.float32)]),
    case("ResizeNearestNeighborGrad", [IMAGES, np.array([3, 5], np.int32)]),
]


@pytest.mark.slow
@pytest.mark.parametrize("item", RESIZED, ids=lambda item: item.op)
def test_a_pixel_that_is_not_finite_stays_alone_in_an_executable(item: Case) -> None:
    images = IMAGES.copy()
    images[0, 2, 3] = np.inf, np.nan
    graph, feeds, fetches = graph_of(item, [images, *item.inputs[1:]])
    ours, wanted = (
        cfgraph.Session(graph, engine=engine).run(fetches, feeds) for engine in ("xla", "tokens")
    )
    assert np.isfinite(wanted[0]).any()
    np.testing.assert_allclose(ours[0], wanted[0], rtol=1e-4, atol=1e-5)


HALVED = """
x = Placeholder() {dtype=TYPE, shape=?}
wide = Cast(x) {SrcT=TYPE, DstT=float32}
half = Const() {dtype=float32, value=float32[]:0.5}
product = Mul(wide, half)
y = Cast(product) {SrcT=float32, DstT=TYPE}
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["int2", "uint2", "int4", "uint4", "float4_e2m1fn"])
def test_elements_of_less_than_a_byte_pass_to_and_from_an_executable(name: str) -> None:
    numbers = np.array([[1, 0], [2, 1], [3, 2]], np.float32)
    x = (numbers - (name == "int2")).astype(DType.from_name(name).numpy)
    graph = cfgraph.loads(HALVED.replace("TYPE", name).encode(), "graph")
    session = cfgraph.Session(graph, engine="xla")
    found, wanted = (
        each.run(["y", "product"], {"x": x})
        for each in (session, cfgraph.Session(graph, engine="tokens"))
    )
    (cluster,) = session.cluster_runner.clusters.values()
    assert (cluster.compiled_times, cluster.fused) == (1, 0)
    for one, other in zip(found, wanted, strict=True):
        _require_alike(name, one.astype(np.float32), other.astype(np.float32))
        assert one.dtype == other.dtype


def _refused(*ops: str) -> list[Case]:
    """Inputs that TensorFlow refuses, and so does NumPy's kernel."""
    cases = [item for item in all_cases() if item.op in ops and item.error]
    return [item for item in cases if all(array.dtype != object for array in item.inputs)]


BOUNDS: Final = [np.array([n], np.int32) for n in (5, 6, 1)]
SHRINK: Final = {"shrink_axis_mask": 1}
ROWS: Final = np.ones((3, 2), np.float32)
REFUSED: Final = [
    *_refused("ReverseSequence", "StridedSlice", "XlaDynamicSlice", "XlaDynamicUpdateSlice"),
    case("StridedSliceGrad", [np.array(ROWS.shape, np.int32), *BOUNDS, ROWS[0]], SHRINK),
    case("TensorStridedSliceUpdate", [ROWS, *BOUNDS, ROWS[0]], SHRINK),
]


@pytest.mark.slow
@pytest.mark.parametrize("item", REFUSED, ids=lambda item: item.label)
def test_what_the_kernel_of_numpy_refuses_is_an_error_in_an_executable(item: Case) -> None:
    graph, feeds, fetches = graph_of(item, list(item.inputs))
    messages = []
    for engine in ("tokens", "xla"):
        with pytest.raises(ExecutionError) as caught:
            cfgraph.Session(graph, engine=engine).run(fetches, feeds)
        messages.append(caught.value.message)
    assert messages[0] == messages[1]
