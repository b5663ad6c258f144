"""Every recorded session and gradient agrees with TensorFlow, whatever passes, engine, devices."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from tests.conformance import recorded
from tests.conformance.agree.ways import Way
from tests.conformance.recorded_ways import difference
from tests.sampled import sampled

# one of how many sessions, and of how many gradients, has a way in a plain run (0: the sweep alone
# runs all of them, which it does for each number; `.`: none)
WAYS = """
 6    8     auto
36   18     random
18    .     lower auto
36    .     cluster compiled
 0    .     cluster=1 compiled
36    .     cluster*=2 compiled
24   36     jit=numpy
64    .     jit=xla
24    0     regions=numpy
80    0     regions=xla
36    .     optimize compiled
72    .     optimize* tokens
120    .     freeze auto
120    .     extract auto
30    .     lower functionalize auto
80    .     lower functionalize=converter auto
 0    .     functionalize compiled
 0    .     functionalize tokens
 0    .     functionalize lower auto
 .   36     functionalize gradient auto
 .   36     gradient functionalize* auto
 .   32     gradient=2 auto
 .    0     gradient=1 partition auto
 .    0     gradient=3 partition auto
72    .     partition auto
72   64     partition random
 0    0     partition random=1
 0    0     partition random=2
 0    0     partition random=3
72   36     partition=cpu:0,gpu:0,gpu:1 memory
48   72     partition=cpu:0,gpu:0,gpu:1 card
80   80     partition=cpu:0,gpu:0,gpu:1 card=real
60   60     one-card
80   80     one-card=real
120   180     partition=cpu:0-3 workers=2
 0    0     partition=cpu:0-3 workers=4
 0    .     lower tensorflow
 0    .     functionalize tensorflow
 0    .     optimize tensorflow
 0    .     cluster tensorflow
"""
MARKS = {
    "card": [pytest.mark.gpu],
    "card=real": [pytest.mark.gpu, pytest.mark.card],
    "one-card": [pytest.mark.gpu],
    "one-card=real": [pytest.mark.gpu, pytest.mark.card],
    "jit=xla": [pytest.mark.xla],
    "regions=xla": [pytest.mark.xla],
    "tensorflow": [pytest.mark.interop],
    "workers=2": [pytest.mark.workers],
    "workers=4": [pytest.mark.workers],
}
KINDS = {kind: recorded.parameters(kind) for kind in ("session", "gradient")}
HOST = [
    pytest.param(case, id=case["id"])
    for case in recorded.cases()
    if case["kind"] == "gradient" and "host" in case["tags"]
]


def parameters() -> Iterator[Any]:
    """A case in a way each."""
    for number, row in enumerate(WAYS.strip().splitlines()):
        sessions, gradients, *stages = row.split()
        text = " ".join(stages)
        for kind, rate in (("session", sessions), ("gradient", gradients)):
            if rate == ".":
                continue
            # each way has other cases in a plain run
            cases = [*KINDS[kind][number:], *KINDS[kind][:number]]
            for case in sampled(cases, int(rate)):
                yield pytest.param(
                    case.values[0],
                    Way.parse(text),
                    marks=[*case.marks, *MARKS.get(stages[-1], ())],
                    id=f"{text}-{case.id}",
                )


@pytest.mark.parametrize(("case", "way"), [*parameters()])
def test_a_recorded_case_agrees(
    case: dict[str, Any], way: Way, request: pytest.FixtureRequest
) -> None:
    options = {}
    if way.engine.endswith("xla") and find_spec("jax") is None:
        pytest.skip("jax (extra `xla`) is absent")
    if way.engine == "tensorflow":
        pytest.importorskip("tensorflow", reason="needs the extra `interop`")
    if way.engine.endswith("card=real"):
        options["gpu"] = request.getfixturevalue("real_card")
    failure = difference(case, way, **options)
    is_on_workers = way.engine.startswith("workers") and case["kind"] == "gradient"
    # a handle stays on its worker
    assert not failure or (is_on_workers and "cannot leave its worker" in failure), failure


@pytest.mark.parametrize("case", HOST)
def test_what_only_a_program_could_differentiate_is_refused(case: dict[str, Any]) -> None:
    failure = difference(case, Way.parse("auto"))
    assert not failure or failure.startswith("Unsupported")
