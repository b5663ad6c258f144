from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cfgraph.errors import CfgraphError
from tests.ops import harness
from tests.ops.scenario import Kernels, Run, Scenario, Sketch, run_tensorflow, scenarios

every = pytest.mark.parametrize("scene", scenarios().values(), ids=scenarios().keys())
ANY = harness.case("Identity", [0])


@pytest.mark.interop
@every
def test_every_run_agrees_with_tensorflow(scene: Scenario) -> None:
    if harness.tensorflow() is None:
        pytest.skip("TensorFlow is not installed (extra `interop`)")
    sketch = Sketch()
    runs = scene(sketch)
    kernels = Kernels(sketch.graph)
    for number, (run, theirs) in enumerate(
        zip(runs, run_tensorflow(sketch.graph, runs), strict=True)
    ):
        ours = outcome(kernels, run)
        where = f"run {number}: {ours}, TensorFlow has {theirs}"
        assert isinstance(ours, Exception) == isinstance(theirs, Exception), where
        if not isinstance(ours, Exception) and not isinstance(theirs, Exception):
            assert len(ours) == len(theirs), where
            for mine, wanted in zip(ours, theirs, strict=True):
                harness.assert_same(ANY, mine, wanted)


@every
def test_every_run_returns_the_inferred_types_and_shapes(scene: Scenario) -> None:
    sketch = Sketch()
    kernels = Kernels(sketch.graph)
    for run in scene(sketch):
        outcome(kernels, run)


def outcome(kernels: Kernels, run: Run) -> list[Any] | Exception:
    """The outputs of a run, or its error."""
    try:
        with np.errstate(all="ignore"):
            return kernels.run(run)
    except (CfgraphError, *harness.REFUSED) as error:
        return error
