from __future__ import annotations

import pytest

from cfgraph.analysis.regions import regions
from cfgraph.errors import Unsupported
from tests.analysis.written import LOOP, graph

SECOND = """
    again = Enter(y) {frame_name="loop", parallel_iterations=4}
    m2 = Merge(again, n2) {T=float32, N=2}
    s2 = Switch(m2, c)
    n2 = NextIteration(s2:1)
    z = Exit(s2)
"""


def test_a_loop_that_waits_for_what_leaves_it_has_no_order() -> None:
    made = graph(LOOP, SECOND)
    with pytest.raises(Unsupported, match=r"what leaves a loop leads back into it: .*y") as caught:
        regions(made)
    assert (caught.value.code, caught.value.frame) == ("CFG503", "/")


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
