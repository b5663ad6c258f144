"""The gradient of one op by TensorFlow, compared with cfgraph's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tests.ops import harness
from tests.ops.gradient_harness import arguments, float_inputs, notes, weight
from tests.ops.harness import Case, node_of, type_of

# what TensorFlow says where an op has a gradient, and no kernel computes it
MISSING_IN_TENSORFLOW: Final = (
    "No OpKernel was registered",
    "only supports NHWC",
    "CPU implementations do not yet support",
    "doesn't match computed",  # explicit padding of a depthwise convolution
)


class TensorFlowGradients:
    """The gradients of some cases by TensorFlow, in one graph and one session.

    `first` and `second` are as in Derived, or the LookupError that TensorFlow gives.
    """

    def __init__(self) -> None:
        self.tf = harness.tensorflow()
        self.graph = self.tf.Graph()
        options = self.tf.compat.v1.ConfigProto(
            inter_op_parallelism_threads=1, intra_op_parallelism_threads=1
        )
        options.graph_options.place_pruned_graph = True
        options.graph_options.rewrite_options.disable_meta_optimizer = True
        options.graph_options.optimizer_options.opt_level = -1
        self.session = self.tf.compat.v1.Session(graph=self.graph, config=options)
        self.count = 0

    def __enter__(self) -> TensorFlowGradients:
        return self

    def __exit__(self, *error: object) -> None:
        self.session.close()

    def add(self, item: Case, ys: Sequence[int], *, second: bool = False) -> TensorFlowDerived:
        """Differentiate a case."""
        self.count += 1
        with self.graph.as_default(), self.graph.name_scope(f"c{self.count}"):
            return TensorFlowDerived(self, item, ys, second)


class TensorFlowDerived:
    """The values and gradients of Derived, computed by TensorFlow."""

    def __init__(
        self, theirs: TensorFlowGradients, item: Case, ys: Sequence[int], second: bool
    ) -> None:
        self.tf, self.session = theirs.tf, theirs.session
        v1 = self.tf.compat.v1
        self.named = {}
        for i, array in enumerate(item.inputs):
            kind = self.tf.as_dtype(type_of(item, i).number)
            if i in float_inputs(item):
                self.named[f"x{i}"] = v1.placeholder(kind, array.shape)
            else:
                self.named[f"x{i}"] = self.tf.constant(array, kind)
        self.xs = [f"x{i}:0" for i in arguments(item)]
        self.operation = harness.imported(self.tf, item, node_of(item), "case", **self.named)
        outputs = [self.operation.outputs[i] for i in ys]
        for i, output in zip(ys, outputs, strict=True):
            self.named[f"dy{i}"] = v1.placeholder(output.dtype, output.shape)
            self.named[f"op:{i}"] = output
        seeds = [f"dy{i}:0" for i in ys]
        self.first = self._gradients(outputs, self.xs, seeds)
        self.second: Any = {}
        if second and not isinstance(self.first, LookupError):
            known = {weight(key): x for key, x in self.first.items() if x is not None}
            for name, tensor in known.items():
                self.named[name.removesuffix(":0")] = v1.placeholder(tensor.dtype, tensor.shape)
            by = [*self.xs, *seeds]
            self.second = self._gradients([*known.values()], by, [*known]) if known else {}

    def _gradients(self, ys: list[Any], xs: list[str], seeds: list[str]) -> Any:
        try:
            found = self.tf.gradients(
                ys, list(map(self._tensor, xs)), list(map(self._tensor, seeds))
            )
        except (LookupError, NotImplementedError) as error:
            return LookupError(str(error))
        dense = [None if x is None else self.tf.convert_to_tensor(x) for x in found]
        return dict(zip(xs, dense, strict=True))

    def _tensor(self, name: str) -> Any:
        return self.named.get(name, self.named.get(name.partition(":")[0]))

    def values(self, names: dict[str, Any], feeds: dict[str, Any]) -> dict[str, Any] | None:
        """The values of gradients, those that are None left out.

        None where TensorFlow has no kernel on a CPU that computes them.
        """
        known = {key: tensor for key, tensor in names.items() if tensor is not None}
        feed_dict = {self._tensor(key): value for key, value in feeds.items() if self._is_fed(key)}
        try:
            result: dict[str, Any] = self.session.run(known, feed_dict)
        except Exception as error:
            if any(words in str(error) for words in MISSING_IN_TENSORFLOW):
                return None
            raise
        return result

    def _is_fed(self, name: str) -> bool:
        tensor = self._tensor(name)
        return tensor is not None and tensor.op.type != "Const"


def assert_gradients(item: Case, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Ours are TensorFlow's; where one has none, the other has none either, or zeros."""
    for key, array in theirs.items():
        wanted = np.asarray(array)
        if key not in ours:
            assert not np.any(wanted), f"none by {key}, TensorFlow has\n{wanted}"
            continue
        mine, kind = np.asarray(ours[key]), wanted.dtype.name
        assert mine.shape == wanted.shape, f"{key}: {mine.shape}, TensorFlow has {wanted.shape}"
        assert mine.dtype == wanted.dtype, f"{key}: {mine.dtype}, TensorFlow has {wanted.dtype}"
        rtol = 5 * max(harness.TOLERANCES[kind], item.rtol or 0)
        mine, wanted = (_comparable(array, item.op in notes("POLES")) for array in (mine, wanted))
        finite = np.abs(wanted[np.isfinite(wanted)])
        least = max(item.atol or 0, harness.SMALLEST.get(kind, 0))
        atol = max(rtol * (finite.max() if finite.size else 0), least)
        np.testing.assert_allclose(mine, wanted, rtol, atol, equal_nan=True, err_msg=key)
    more = {f"x{i}:0" for i in arguments(item) if f"{item.op} by {i}" in notes("OUR_GRADIENT")}
    extra = [key for key in ours.keys() - theirs.keys() - more if np.any(ours[key])]
    assert not extra, f"TensorFlow has no gradient by {extra}"


def _comparable(array: Any, poles: bool) -> Any:
    """In doubles; complex numbers are finite or NaN, as libraries do not agree on infinite ones."""
    if array.dtype.kind != "c" and not poles:
        return array.astype(np.float64)
    double = np.complex128 if array.dtype.kind == "c" else np.float64
    return np.where(np.isfinite(array), array.astype(double), np.nan)
