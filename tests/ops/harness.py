"""One case of one op, run by cfgraph and by TensorFlow: what the sweep over all ops is made of."""

from __future__ import annotations

import importlib.util
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import cfgraph.ops  # noqa: F401  (fills the registry)
from cfgraph.ir import registry
from cfgraph.ir.attrs import Func, TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.index import FAMILIES
from cfgraph.ops.opdef.op import lookup
from cfgraph.ops.opdef.shape_functions import InferenceContext
from tests.sampled import few_of_each, in_sweep

FOLDER = Path(__file__).parent / "cases"
TOLERANCES = {"float16": 1e-2, "bfloat16": 2e-2, "float32": 2e-5, "float64": 1e-9}
TOLERANCES |= {"complex64": 2e-5, "complex128": 1e-9}
SMALLEST = {"float32": 1e-6, "complex64": 1e-6, "float64": 1e-12, "complex128": 1e-12}
REFUSED = (ValueError, TypeError, IndexError, ArithmeticError, np.linalg.LinAlgError)


# the reason of an op without a gradient that TensorFlow differentiates
NO_GRADIENT_YET = "the gradient of TensorFlow is not implemented"


@dataclass(frozen=True, eq=False)
class Case:
    """One op on given inputs. `error`: TensorFlow refuses it, and so must we.

    `types` overrides the inputs' element types (quantized ones have no NumPy type of their own).
    `compare` is `values`, `shape` (random ops) or a function (ours, theirs, inputs) that asserts.
    """

    op: str
    inputs: tuple[np.ndarray, ...]
    attrs: dict[str, Any]
    error: bool = False
    rtol: float | None = None
    atol: float | None = None
    compare: str | Callable[..., None] = "values"
    types: tuple[str | None, ...] = ()
    family: str = ""
    place: list[int] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The case in one line."""
        arrays = ",".join(f"{type_of(self, i)}{list(a.shape)}" for i, a in enumerate(self.inputs))
        attrs = ",".join(f"{k}={v}" for k, v in self.attrs.items())
        text = f"{self.op}({arrays}{';' if attrs else ''}{attrs})".replace(" ", "")
        return text if len(text) < 150 else text[:150] + "…"


def i32(*values: Any) -> Any:
    """An array of int32."""
    return np.array(values, np.int32)


def i64(*values: Any) -> Any:
    """An array of int64."""
    return np.array(values, np.int64)


def case(
    op: str, inputs: Sequence[Any] = (), attrs: dict[str, Any] | None = None, **more: Any
) -> Case:
    """A case; inputs may be anything `np.asarray` takes, text becomes an array of bytes.

    An attribute that is a type is a NumPy type (`np.float32`) or a `DType`, a text is a string.
    """
    encoded = {key: _attr(value) for key, value in (attrs or {}).items()}
    return Case(op, tuple(map(_array, inputs)), encoded, **more)


def _array(value: Any) -> np.ndarray:
    texts = np.array(value, object) if isinstance(value, list | str | bytes) else np.asarray(value)
    flat = texts.ravel().tolist()
    if texts.dtype.kind in "SUO" and all(isinstance(item, str | bytes) for item in flat):
        array = np.empty(len(flat), object)
        array[:] = [item if isinstance(item, bytes) else item.encode() for item in flat]
        array = array.reshape(texts.shape)
    else:
        array = np.array(value)
    array.flags.writeable = False
    return array


def _attr(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list | tuple):
        return tuple(_attr(item) for item in value)
    if isinstance(value, np.ndarray):
        return TensorValue(value)
    if isinstance(value, type | np.dtype):
        return DType.from_numpy(value)
    if isinstance(value, float):  # an attribute holds 32 bits
        return float(np.float32(value))
    return value.item() if isinstance(value, np.generic) else value


def type_of(case: Case, slot: int) -> DType:
    """The element type of one input."""
    if slot < len(case.types) and case.types[slot]:
        return DType.from_name(case.types[slot] or "")
    return DType.from_numpy(case.inputs[slot].dtype)


@cache
def modules() -> dict[str, ModuleType]:
    """The case files, by family."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem == "__init__":
            continue
        spec = importlib.util.spec_from_file_location(f"cfgraph_cases_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        found[path.stem] = importlib.util.module_from_spec(spec)
        with np.errstate(all="ignore"):
            spec.loader.exec_module(found[path.stem])
    return found


@cache
def families() -> dict[str, list[Case]]:
    """All cases, by family. A case file holds `CASES`, and may hold `WITHOUT_CASE: {op: why}`."""
    found = {}
    for family, module in modules().items():
        found[family] = list(module.CASES)
        for place, item in enumerate(found[family]):
            item.place.append(place)
            object.__setattr__(item, "family", family)
    return found


def all_cases() -> Iterator[Case]:
    """The cases of all families."""
    for cases in families().values():
        yield from cases


# families of which no recorded program and no recorded model has an op
UNRECORDED = """
colors ctc dense_tables dilation distinct edit_distance fake_quant fourier fused generators gru
lookup_table_files lookup_tables normalization onednn onednn_chains pooling projective_transform
quantization quantized_arithmetic quantized_images queues ragged_variants requantization resampling
segment sets space_blocks sparse_segment special stablehlo staging tensor_array_legacy
""".split()  # noqa: SIM905
_UNRECORDED_OPS = {op for family in UNRECORDED for op in FAMILIES[family].split()}


def few_of_each_op(groups: Mapping[str, Sequence[Case]], count: int) -> list[Any]:
    """As `few_of_each`, but those of ops that no recording has are in the sweep alone."""
    rare = {name for name, cases in groups.items() if cases[0].op in _UNRECORDED_OPS}
    common = {name: cases for name, cases in groups.items() if name not in rare}
    others = in_sweep(name for name in groups if name in rare)
    slow = [pytest.param(groups[name], id=name, marks=pytest.mark.slow) for name in others]
    return few_of_each(common, count) + slow


# -- ours ------------------------------------------------------------------------------------------


class LocalStep:
    """A Step for ops that need one, outside of any run."""

    def __init__(self) -> None:
        self.state: dict[tuple[str, str, str], Any] = {}
        self.temporaries: dict[tuple[str, str], Any] = {}
        self.printed: list[str] = []
        self.draws = 0

    def resource(
        self, container: str, name: str, make: Callable[[], Any], namespace: str = ""
    ) -> Any:
        """The object of this container and name."""
        key = (container, name, namespace)
        if key not in self.state:
            self.state[key] = make()
        return self.state[key]

    def forget(self, container: str, name: str, namespace: str = "") -> None:
        """Drop an object."""
        self.state.pop((container, name, namespace), None)

    def add_temporary(self, device: str, name: str, resource: Any) -> bool:
        """Store a resource until the run ends; false if the name is taken."""
        return self.temporaries.setdefault((device, name), resource) is resource

    def remove_temporary(self, device: str, name: str, resource: Any) -> bool:
        """Remove a resource; false if it is not there."""
        return self.temporaries.pop((device, name), None) is resource

    def generator(
        self, seed: int, seed2: int, stream: str | None = None, position: int = 0
    ) -> np.random.Generator:
        """A generator that is another one at each call."""
        self.draws += 1
        return np.random.Generator(np.random.Philox(key=[seed + 1, seed2 + self.draws]))

    def print(self, text: str, stream: str = "stderr") -> None:
        """Keep the text."""
        self.printed.append(text)

    def require_readable(self, path: str) -> None:
        """Permit every file."""

    def append_to_file(self, path: str, data: bytes) -> None:
        """Append to the file."""
        with open(path, "ab") as file:
            file.write(data)


@lru_cache(maxsize=1)
def node_of(case: Case) -> Node:
    """The node of a case in a graph of its own, its inputs placeholders of the given shapes."""
    graph = Graph()
    inputs = [
        Output(
            graph.add(
                "Placeholder", name=f"x{i}", dtype=type_of(case, i), shape=Shape(array.shape)
            ),
            0,
        )
        for i, array in enumerate(case.inputs)
    ]
    return graph.add(case.op, *inputs, name="op", attrs=case.attrs)


def run_ours(case: Case, *, zero_d: bool = False) -> list[Any]:
    """The outputs as cfgraph computes them; scalars go in as NumPy scalars, or 0-d arrays."""
    node = node_of(case)
    op = lookup(case.op)
    assert op is not None, f"{case.op} is not registered"
    inputs = [a if zero_d or a.ndim or a.dtype == object else a[()] for a in case.inputs]
    with np.errstate(all="ignore"):
        if op.effects.stateful:
            result = op.prepare(node, np)(LocalStep(), *inputs)
        else:
            result = op.bind(node, np)(*inputs)
    if result is None:
        return []
    assert not isinstance(result, tuple) or len(result) > 1, "one output must not be a tuple"
    return list(result) if isinstance(result, tuple) else [result]


def infer(case: Case, shapes: Sequence[Shape], *, values: bool) -> Sequence[Shape]:
    """The static shapes of a case's outputs, from these input shapes."""
    node = node_of(case)
    op = lookup(case.op)
    assert op is not None
    context = InferenceContext(
        node, tuple(shapes), lambda slot: case.inputs[slot] if values else None
    )
    return op.shape(context)


def knowledge(case: Case) -> list[tuple[list[Shape], bool]]:
    """Combinations of static shapes and values of the inputs, from complete to unknown."""
    full = [Shape(a.shape) for a in case.inputs]
    ranks = [Shape([None] * a.ndim) for a in case.inputs]
    nothing = [UNKNOWN_SHAPE] * len(full)
    first = [*full[:1], *nothing[1:]]
    rest = [*nothing[:1], *full[1:]]
    with_values = [(shapes, True) for shapes in (full, ranks, nothing)]
    return [*with_values, *((shapes, False) for shapes in (full, ranks, nothing, first, rest))]


# -- TensorFlow's ----------------------------------------------------------------------------------


@cache
def tensorflow() -> Any:
    """TensorFlow, or None where it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import tensorflow as tf
        except ImportError:
            return None
    return tf


@cache
def tf_result(item: Case) -> list[Any] | Exception:
    """The outputs of a case, or the error that TensorFlow gives.

    In a graph of its own: an op without a kernel spoils every run of the graph that it is in.
    """
    tf = tensorflow()
    try:
        node = node_of(item)
    except Exception as error:
        if not item.error:
            return AssertionError(f"cfgraph cannot build the node: {error}")
        node = _bare(item)
    if item.family == "xla":
        return _compiled_result(tf, item, node)
    options = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=1, intra_op_parallelism_threads=1
    )
    options.graph_options.rewrite_options.disable_meta_optimizer = True
    options.graph_options.optimizer_options.opt_level = -1
    feeds = {f"x{slot}:0": array for slot, array in enumerate(item.inputs)}
    try:
        with tf.Graph().as_default() as graph:
            operation = imported(tf, item, node)
            with tf.compat.v1.Session(graph=graph, config=options) as session:
                results: list[Any] = session.run([operation, list(operation.outputs)], feeds)[1]
                return results
    except Exception as error:
        return error


def _compiled_result(tf: Any, item: Case, node: Node) -> list[Any] | Exception:
    """The outputs in a compiled function, in which the inputs are constants."""

    definition = _definition(tf, item, node)
    for holder, array in zip(definition.node, item.inputs, strict=False):
        holder.op = "Const"
        del holder.attr["shape"]
        holder.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(array))

    def call() -> Any:
        return list(tf.import_graph_def(definition, {}, ["op"])[0].outputs)

    try:
        return [x.numpy() for x in tf.function(call, jit_compile=True, autograph=False)()]
    except Exception as error:
        return error


def imported(tf: Any, item: Case, node: Node, name: str = "", **tensors: Any) -> Any:
    """Import a case into the current graph; its operation. `tensors` stand for some inputs.

    What was removed from TensorFlow still runs in graphs of its time.
    """
    definition = _definition(tf, item, node)
    input_map = {f"{key}:0": tensor for key, tensor in tensors.items()}
    try:
        return tf.import_graph_def(definition, input_map, ["op"], name)[0]
    except Exception as error:
        removed = re.search(r"removed in version (\d+)", str(error))
        if removed is None:
            raise
        definition.versions.producer = int(removed[1]) - 1
        return tf.import_graph_def(definition, input_map, ["op"], name)[0]


def _definition(tf: Any, item: Case, node: Node) -> Any:
    """The case as a GraphDef: a placeholder for each input, and the node."""
    definition = tf.compat.v1.GraphDef()
    definition.versions.producer = tf.version.GRAPH_DEF_VERSION
    for slot, array in enumerate(item.inputs):
        holder = definition.node.add(name=f"x{slot}", op="Placeholder")
        holder.attr["dtype"].type = type_of(item, slot).number
        _write_shape(holder.attr["shape"].shape, Shape(array.shape))
    target = definition.node.add(name="op", op=item.op)
    target.input.extend(f"x{slot}" for slot in range(len(item.inputs)))
    for key, value in node.attrs.items():
        _write(tf, target.attr[key], value)
    return definition


def _bare(item: Case) -> Node:
    """The node without what is inferred or checked."""
    definition = registry.lookup(item.op)
    assert definition is not None, f"{item.op} is not registered"
    try:
        types = [type_of(item, i) for i in range(len(item.inputs))]
        attrs = definition.parsed().infer(types, item.attrs)
    except ValueError:
        attrs = dict(item.attrs)
    return Graph().create("op", item.op, attrs=attrs)


def _write(tf: Any, to: Any, value: Any) -> None:
    if isinstance(value, tuple):
        to.list.SetInParent()
        for item in value:
            _write_item(tf, to.list, item)
    elif isinstance(value, bool):
        to.b = value
    elif isinstance(value, int):
        to.i = value
    elif isinstance(value, float):
        to.f = value
    elif isinstance(value, bytes):
        to.s = value
    elif isinstance(value, DType):
        to.type = value.number
    elif isinstance(value, Shape):
        _write_shape(to.shape, value)
    elif isinstance(value, TensorValue):
        to.tensor.CopyFrom(tf.make_tensor_proto(value.array))
    elif isinstance(value, Func):
        to.func.name = value.name
    else:
        raise TypeError(value)


def _write_item(tf: Any, to: Any, value: Any) -> None:
    if isinstance(value, bool):
        to.b.append(value)
    elif isinstance(value, int):
        to.i.append(value)
    elif isinstance(value, float):
        to.f.append(value)
    elif isinstance(value, bytes):
        to.s.append(value)
    elif isinstance(value, DType):
        to.type.append(value.number)
    elif isinstance(value, Shape):
        _write_shape(to.shape.add(), value)
    elif isinstance(value, TensorValue):
        to.tensor.add().CopyFrom(tf.make_tensor_proto(value.array))
    else:
        raise TypeError(value)


def _write_shape(to: Any, shape: Shape) -> None:
    to.SetInParent()
    to.unknown_rank = shape.dims is None
    for size in shape.dims or ():
        to.dim.add(size=-1 if size is None else size)


# -- comparing -------------------------------------------------------------------------------------


def assert_same(item: Case, ours: Any, theirs: Any) -> None:
    """One output agrees: its type, its shape, its values within the tolerance of the type."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if theirs.dtype.kind in "SU":
        theirs = theirs.astype(object)
    assert ours.shape == theirs.shape, f"shape {ours.shape}, TensorFlow has {theirs.shape}"
    if theirs.dtype.kind == "V" and theirs.dtype.names:  # a quantized type
        theirs = theirs.view(theirs.dtype[0])
    assert ours.dtype == theirs.dtype, f"dtype {ours.dtype}, TensorFlow has {theirs.dtype}"
    if item.compare == "shape":
        return
    if ours.dtype == object:
        assert ours.tolist() == theirs.tolist()
        return
    name = ours.dtype.name
    if ours.dtype.kind in "biu" or not (ours.dtype.kind in "fc" or name in TOLERANCES):
        assert np.array_equal(ours, theirs), f"\n{ours!r}\nTensorFlow has\n{theirs!r}"
        return
    rtol = TOLERANCES.get(name, 0.1) if item.rtol is None else item.rtol
    atol = SMALLEST.get(name, rtol) if item.atol is None else item.atol
    if ours.dtype.kind not in "fc":
        ours, theirs = ours.astype(np.float32), theirs.astype(np.float32)
    np.testing.assert_allclose(ours, theirs, rtol, atol, equal_nan=True)


def assert_agrees(item: Case, theirs: list[Any] | Exception) -> None:
    """Our outputs are TensorFlow's; where it refuses, we refuse."""
    if isinstance(theirs, AssertionError):
        raise theirs
    if item.error:
        assert isinstance(theirs, Exception), "TensorFlow does not refuse this"
        return
    assert not isinstance(theirs, Exception), f"TensorFlow refuses this: {theirs}"
    ours = run_ours(item)
    assert len(ours) == len(theirs)
    assert_outputs_agree(item, ours, theirs)


def assert_outputs_agree(item: Case, ours: list[Any], theirs: list[Any]) -> None:
    """All outputs agree, as the case compares them."""
    if callable(item.compare):
        parameters = len(inspect.signature(item.compare).parameters)
        item.compare(*(ours, theirs, item.inputs)[:parameters])
        return
    for mine, wanted in zip(ours, theirs, strict=True):
        assert_same(item, mine, wanted)
