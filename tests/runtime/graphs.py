"""Small graphs in the text format, for tests of the runtime."""

from __future__ import annotations

from typing import Any

import cfgraph
from cfgraph.runtime.session import Session

LOOP = """
n = Placeholder() {dtype=int32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
enter = Enter(zero) {frame_name="loop", parallel_iterations=PARALLEL}
limit = Enter(n) {frame_name="loop", is_constant=true, parallel_iterations=PARALLEL}
merge = Merge(enter, next)
less = Less(merge, limit)
cond = LoopCond(less)
switch = Switch(merge, cond)
body = Identity(switch:1)
one = Const(^body) {dtype=int32, value=int32[]:1}
add = AddV2(body, one)
next = NextIteration(add)
exit = Exit(switch)
out = Identity(exit)
"""


def session(text: str, **options: Any) -> Session:
    """A session of the token executor on a graph in the text format."""
    options = {"engine": "tokens", **options}
    return Session(cfgraph.loads(text.encode(), "graph"), **options)


def loop(parallel: int = 10) -> str:
    """A loop that counts to `n`; `out` is the count."""
    return LOOP.replace("PARALLEL", str(parallel))
