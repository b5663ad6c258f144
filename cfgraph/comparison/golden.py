"""Golden outputs: recorded inputs and outputs of a graph, and the comparison of a graph with them.

An archive has for each case, by names of a signature or of tensors:

    0/in/NAME     an input
    0/out/NAME    an output
    0/dead/NAME   an empty array for an output that has no value
    @seed         the seed of random ops in the first case
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.comparison.differences import RunDiff, ValueMismatch
from cfgraph.comparison.divergence import difference_message
from cfgraph.comparison.equivalence import ComparisonRunOptions
from cfgraph.comparison.sample_point import (
    NORMAL_FLOATS,
    EvaluationPoint,
    FloatGenerator,
    finite_point,
    is_random,
    sample_point,
)
from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph
from cfgraph.ir.traversal import ancestors
from cfgraph.runtime.feeds.parse_feeds import CASE_PREFIX, read_feeds, read_npz

_SEED: Final = f"{CASE_PREFIX}seed"
_HINT: Final = "cfgraph record MODEL -o golden.npz writes golden outputs"
_ENTRY: Final = re.compile(r"(\d{1,6})/(in|out|dead)/(.+)", re.DOTALL)


@dataclass(slots=True)
class GoldenCase:
    """Inputs and outputs by name; an output is None if it is dead."""

    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GoldenOutputs:
    """Cases, and the seed of the first one."""

    cases: Sequence[GoldenCase]
    seed: int

    def arrays(self) -> dict[str, Any]:
        """The entries of the archive."""
        entries: dict[str, Any] = {_SEED: np.int64(self.seed)}
        for number, case in enumerate(self.cases):
            entries.update((f"{number}/in/{name}", value) for name, value in case.inputs.items())
            for name, value in case.outputs.items():
                kind = "dead" if value is None else "out"
                entries[f"{number}/{kind}/{name}"] = np.zeros(0) if value is None else value
        return entries


def read_golden(path: str) -> GoldenOutputs:
    """Read an archive. Raises InvalidInput for other content."""
    cases: dict[int, GoldenCase] = {}
    seed = 0
    for key, value in read_npz(path):
        entry = _ENTRY.fullmatch(key)
        if key == _SEED and value.ndim == 0 and value.dtype.kind in "iu":
            seed = int(value)
        elif entry is None:
            message = f"{key!r} is neither an input nor an output of a case"
            raise InvalidInput(message, path=path, hint=_HINT, code="CFG030")
        else:
            case = cases.setdefault(int(entry[1]), GoldenCase())
            values = case.inputs if entry[2] == "in" else case.outputs
            values[entry[3]] = None if entry[2] == "dead" else value
    if not cases or sorted(cases) != [*range(len(cases))]:
        message = "the archive has no cases" if not cases else "a case of the archive is missing"
        raise InvalidInput(message, path=path, hint=_HINT, code="CFG030")
    return GoldenOutputs([cases[number] for number in sorted(cases)], seed)


@dataclass(frozen=True, slots=True)
class GoldenRuns:
    """Runs of a graph whose tensors have names of a signature; others have their own.

    A fetch with several names of `outputs` has a value for each.
    """

    graph: Graph
    options: ComparisonRunOptions
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    def record(self) -> GoldenOutputs:
        """Run the cases with random inputs, or a single one if nothing is random.

        Raises UsageError for a variable without a value.
        """
        options, names = self.options, {tensor: name for name, tensor in self.inputs.items()}
        cases = list[GoldenCase]()
        for seed in range(options.seed, options.seed + options.cases):
            point, values, _ = finite_point(self._sampler(seed, options.setting.feeds), self._run)
            inputs = {names.get(name, name): value for name, value in point.feeds.items()}
            cases.append(GoldenCase(inputs, self._by_name(values)))
            if len(point.feeds) == len(options.setting.feeds) and not is_random(self.graph):
                break
        return GoldenOutputs(cases, options.seed)

    def compare(self, golden: GoldenOutputs) -> RunDiff:
        """Run the recorded cases up to the first difference; the recorded values come first.

        Raises UsageError for an input or an output that is not recorded.
        """
        fetches, recorded = tuple(self._fetches_by_name()), golden.cases[0].outputs
        for name in fetches:
            if name not in recorded:
                message = f"the output {name!r} is not recorded"
                raise UsageError(message, hint=f"record it; recorded are {', '.join(recorded)}")
        no_value = list(fetches)
        for number, case in enumerate(golden.cases):
            point = self._sampler(golden.seed + number, self._feeds(case))()
            self._require_inputs(point, case)
            values = self._by_name(self._run(point))
            no_value = [name for name in no_value if values[name] is None]
            if gaps := tuple(self._gaps(values, case)):
                seed = golden.seed + number
                return RunDiff(fetches, cases=number + 1, gaps=gaps, inputs=point.feeds, seed=seed)
        return RunDiff(fetches, cases=len(golden.cases), no_value=tuple(no_value))

    def _fetches_by_name(self) -> dict[str, str]:
        names = defaultdict[str, list[str]](list)
        for name, tensor in self.outputs.items():
            names[tensor].append(name)
        fetches = self.options.fetches
        return {name: tensor for tensor in fetches for name in names.get(tensor, (tensor,))}

    def _by_name(self, values: Sequence[Any]) -> dict[str, Any]:
        by_tensor = dict(zip(self.options.fetches, values, strict=True))
        return {name: by_tensor[tensor] for name, tensor in self._fetches_by_name().items()}

    def _run(self, point: EvaluationPoint) -> list[Any]:
        return point.run(self.options.fetches, allow_missing=True)

    def _sampler(self, seed: int, feeds: Mapping[str, Any]) -> Callable[..., EvaluationPoint]:
        """A function that makes the point of a case, for a generator of floats."""
        setting = replace(self.options.setting, feeds=feeds)
        required = [self.graph.tensor(name).node for name in self.options.fetches]

        def sample(floats: FloatGenerator = NORMAL_FLOATS) -> EvaluationPoint:
            point = sample_point(self.graph, required, setting, seed, floats)
            for node in ancestors(self.graph, required) if point.sampled else ():
                if is_variable(node) and variable_key(node) in point.sampled:
                    hint = "restore it with --variables, or run --init NODE"
                    raise UsageError("the variable has no value", node=node, hint=hint)
            return point

        return sample

    def _feeds(self, case: GoldenCase) -> Mapping[str, Any]:
        return read_feeds(self.graph, [], [case.inputs], 0, self.inputs)

    def _require_inputs(self, point: EvaluationPoint, case: GoldenCase) -> None:
        fed = {self.graph.tensor(self.inputs.get(name, name)).name for name in case.inputs}
        for name in point.feeds:
            if name not in fed:
                message = f"no value of the input {name!r} is recorded"
                raise UsageError(message, hint="record the outputs of this model")

    def _gaps(self, values: Mapping[str, Any], case: GoldenCase) -> Iterator[ValueMismatch]:
        tensors = self._fetches_by_name()
        for name, actual in values.items():
            expected = _restored(case.outputs[name], self.graph.tensor(tensors[name]).dtype)
            message = difference_message(expected, actual, self.options.rtol, self.options.atol)
            if message is not None:
                yield ValueMismatch(name, message, expected, actual)


def _restored(value: Any, dtype: DType | None) -> Any:
    """A value as it was before it was stored, which .npy does for neither strings nor bfloat16."""
    if value is None or value.dtype.kind not in "SV":
        return value
    if value.dtype.kind == "S":
        return value.astype(object)
    has_size = dtype is not None and dtype.numpy.itemsize == value.dtype.itemsize
    return value.view(dtype.numpy) if dtype is not None and has_size else value
