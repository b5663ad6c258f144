from __future__ import annotations

import pytest

from cfgraph.analysis.loops.regions import regions
from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import InvalidInput, Unsupported
from tests.analysis.graph_text import LOOP, graph

SECOND = """
    again = Enter(y) {frame_name="loop", parallel_iterations=4}
    m2 = Merge(again, n2) {T=float32, N=2}
    s2 = Switch(m2, c)
    n2 = NextIteration(s2:1)
    z = Exit(s2)
"""


def test_a_loop_that_waits_for_what_leaves_it_has_no_order() -> None:
    made = graph(LOOP, SECOND)
    with pytest.raises(Unsupported, match=r"an output of a loop leads back into it: .*y") as caught:
        regions(made)
    assert (caught.value.code, caught.value.frame) == ("CFG503", "/")


@pytest.mark.parametrize(
    "text",
    [
        "a = Neg(b) {T=float32}\n b = Neg(a) {T=float32}",
        "p = Placeholder() {dtype=bool}\n a = Switch(b, p) {T=float32}\n b = Merge(a, a:1)",
        LOOP.replace("NextIteration(", "Identity("),
    ],
)
def test_a_cycle_that_no_next_iteration_closes_is_refused_as_verify_does(text: str) -> None:
    made = graph(text)
    with pytest.raises(InvalidInput, match="nodes wait for each other in a cycle") as caught:
        regions(made)
    with pytest.raises(InvalidInput) as wanted:
        require_valid(made)
    assert (caught.value.code, caught.value.message) == ("CFG109", wanted.value.message)


def test_loops_one_after_the_other_have_one() -> None:
    made = graph(
        LOOP,
        SECOND.replace('"loop"', '"other"').replace(
            "s2 = Switch(m2, c)",
            """
    p2 = Enter(p) {frame_name="other", is_constant=true, parallel_iterations=4}
    c2 = LoopCond(p2)
    s2 = Switch(m2, c2)""",
        ),
    )
    names = [region.frame.path for region in regions(made).of.values()]
    assert names == ["/", "/loop", "/other"]
