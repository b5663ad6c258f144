"""Families of graphs of any size, each of which makes one part of a command do much work.

Every graph reads the placeholder `x`, a float32 scalar, and computes `y`; most read the predicate
`p`. The size n counts nodes, levels, iterations of a pattern, or functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

_X = "x = Placeholder() {dtype=float32, shape=[]}"
_P = "p = Placeholder() {dtype=bool, shape=[]}"
_F = "{T=float32}"
_ROOT = "function leave(p: bool, x: float32) -> (y: float32) {\n  return y = x\n}"


def _text(lines: Iterator[str] | list[str], *, predicate: bool = False) -> str:
    return "\n".join([_X, *([_P] if predicate else []), *lines, ""])


def _sum(names: list[str], result: str = "y") -> str:
    return f"{result} = AddN({', '.join(names)}) {{N={len(names)}, T=float32}}"


# -- without control flow ------------------------------------------------------------------------


def chain(n: int) -> str:
    """Nodes in a row."""
    lines = [f"c{i} = Neg({f'c{i - 1}' if i else 'x'}) {_F}" for i in range(n)]
    return _text([*lines, f"y = Neg(c{n - 1}) {_F}"])


def identities(n: int) -> str:
    """Identities in a row, which analyses skip."""
    lines = [f"c{i} = Identity({f'c{i - 1}' if i else 'x'}) {_F}" for i in range(n)]
    return _text([*lines, f"y = Neg(c{n - 1}) {_F}"])


def backward_names(n: int) -> str:
    """Nodes in a row, written last to first."""
    lines = [f"c{i} = Neg({f'c{i - 1}' if i else 'x'}) {_F}" for i in reversed(range(n))]
    return _text([f"y = Neg(c{n - 1}) {_F}", *lines])


def fan_out(n: int) -> str:
    """A tensor with many readers, and a sum with many inputs."""
    lines = [f"c{i} = Neg(x) {_F}" for i in range(n)]
    return _text([*lines, _sum([f"c{i}" for i in range(n)])])


def control_fan_in(n: int) -> str:
    """A node that waits for many."""
    lines = [f"c{i} = Neg(x) {_F}" for i in range(n)]
    waits = ", ".join(f"^c{i}" for i in range(n))
    return _text([*lines, f"all = NoOp({waits})", f"y = Neg(c0, ^all) {_F}"])


def control_fan_out(n: int) -> str:
    """A node for which many wait."""
    lines = [f"c{i} = Neg(x, ^first) {_F}" for i in range(n)]
    return _text([f"first = Neg(x) {_F}", *lines, _sum([f"c{i}" for i in range(n)])])


def diamonds(n: int) -> str:
    """Nodes that read their predecessor twice: 2^n paths."""
    lines = [f"c{i} = Mul({', '.join([f'c{i - 1}' if i else 'x'] * 2)}) {_F}" for i in range(n)]
    return _text([*lines, f"y = Neg(c{n - 1}) {_F}"])


def shortcuts(n: int) -> str:
    """A chain whose last nodes read all first ones."""
    names = [f"c{i}" for i in range(n)]
    lines = [f"c{i} = Neg({f'c{i - 1}' if i else 'x'}) {_F}" for i in range(n)]
    return _text([*lines, _sum(names, "sum"), f"y = Neg(sum) {_F}"])


def constants(n: int) -> str:
    """Many constants."""
    lines = [f"k{i} = Const() {{dtype=float32, value=float32[]:{i}.0}}" for i in range(n)]
    return _text([*lines, _sum([f"k{i}" for i in range(n)], "k"), f"y = Mul(x, k) {_F}"])


def wide_constant(n: int) -> str:
    """A constant with many elements."""
    values = ", ".join(f"{i}.5" for i in range(n))
    return _text(
        [
            f"k = Const() {{dtype=float32, value=float32[{n}]:[{values}]}}",
            "zero = Const() {dtype=int32, value=int32[1]:[0]}",
            f"w = Mul(x, k) {_F}",
            "y = Sum(w, zero) {T=float32, Tidx=int32, keep_dims=false}",
        ]
    )


def same_names(n: int) -> str:
    """Names that differ by their suffix alone."""
    names = ["c", *(f"c_{i}" for i in range(1, n))]
    lines = [f"{name} = Neg(x) {_F}" for name in names]
    return _text([*lines, _sum(names)])


def devices(n: int) -> str:
    """A chain whose every edge crosses between two devices."""
    lines = [
        f'c{i} = Neg({f"c{i - 1}" if i else "x"}) {_F} @"/device:CPU:{i % 2}"' for i in range(n)
    ]
    return _text([*lines, f'y = Neg(c{n - 1}) {_F} @"/device:CPU:0"'])


# -- conditionals ---------------------------------------------------------------------------------


def one_merge(n: int) -> str:
    """One Merge of the sides of many Switches."""
    lines, last = [], "x"
    for i in range(n):
        lines += [f"p{i} = Equal(x, x) {_F}" if i == n - 1 else f"p{i} = Less(x, x) {_F}"]
        lines += [f"s{i} = Switch({last}, p{i}) {_F}"]
        last = f"s{i}:0"
    sides = ", ".join(f"s{i}:1" for i in range(n))
    return _text([*lines, f"m = Merge({sides}) {{N={n}, T=float32}}", f"y = Neg(m) {_F}"])


def nested_conditionals(n: int) -> str:
    """Switches in the branch of a Switch in the branch of …, and the Merges outwards."""
    lines, last = [], "x"
    for i in range(n):
        lines += [f"p{i} = GreaterEqual(x, x) {_F}", f"s{i} = Switch({last}, p{i}) {_F}"]
        lines += [f"t{i} = Neg(s{i}:1) {_F}"]
        last = f"t{i}"
    for i in reversed(range(n)):
        lines += [f"m{i} = Merge(s{i}:0, {last}) {{N=2, T=float32}}"]
        last = f"m{i}"
    return _text([*lines, f"y = Neg({last}) {_F}"])


def same_predicate(n: int) -> str:
    """Many Switches of one predicate, and a Merge for each."""
    lines = []
    for i in range(n):
        lines += [f"s{i} = Switch(x, p) {_F}", f"t{i} = Neg(s{i}:1) {_F}"]
        lines += [f"m{i} = Merge(s{i}:0, t{i}) {{N=2, T=float32}}"]
    return _text([*lines, _sum([f"m{i}" for i in range(n)])], predicate=True)


def conditionals(n: int) -> str:
    """Conditionals in a row, each of its own predicate."""
    lines, last = [], "x"
    for i in range(n):
        lines += [f"p{i} = GreaterEqual({last}, x) {_F}", f"s{i} = Switch({last}, p{i}) {_F}"]
        lines += [f"t{i} = Neg(s{i}:1) {_F}"]
        lines += [f"m{i} = Merge(s{i}:0, t{i}) {{N=2, T=float32}}"]
        last = f"m{i}"
    return _text([*lines, f"y = Neg({last}) {_F}"])


def conjunctions(n: int) -> str:
    """Predicates that are conjunctions of the ones before."""
    lines, last = [], "p"
    for i in range(n):
        lines += [f"q{i} = GreaterEqual(x, x) {_F}", f"p{i} = LogicalAnd({last}, q{i})"]
        lines += [f"s{i} = Switch(x, p{i}) {_F}", f"t{i} = Neg(s{i}:1) {_F}"]
        lines += [f"m{i} = Merge(s{i}:0, t{i}) {{N=2, T=float32}}"]
        last = f"p{i}"
    return _text([*lines, _sum([f"m{i}" for i in range(n)])], predicate=True)


# -- loops ----------------------------------------------------------------------------------------


def _loop(name: str, start: str, body: str, trips: int = 1) -> list[str]:
    """A counted loop over the value `start`; `body` computes `name/next` from `name/value`."""
    enter = f'{{T=float32, frame_name="{name}", is_constant=false, parallel_iterations=10}}'
    return [
        *_counter(name, start, trips),
        f"{name}/Enter = Enter({start}) {enter}",
        f"{name}/Merge = Merge({name}/Enter, {name}/Next) {{N=2, T=float32}}",
        f"{name}/Switch = Switch({name}/Merge, {name}/Cond) {_F}",
        f"{name}/value = Identity({name}/Switch:1) {_F}",
        body,
        f"{name}/Next = NextIteration({name}/next) {_F}",
        f"{name}/Exit = Exit({name}/Switch) {_F}",
    ]


def _counter(name: str, start: str, trips: int) -> list[str]:
    enter = f'{{T=int32, frame_name="{name}", is_constant=false, parallel_iterations=10}}'
    return [
        f"{name}/zero = Const(^{start}) {{dtype=int32, value=int32[]:0}}",
        f"{name}/i/Enter = Enter({name}/zero) {enter}",
        f"{name}/i/Merge = Merge({name}/i/Enter, {name}/i/Next) {{N=2, T=int32}}",
        f"{name}/limit = Const(^{name}/i/Merge) {{dtype=int32, value=int32[]:{trips}}}",
        f"{name}/less = Less({name}/i/Merge, {name}/limit) {{T=int32}}",
        f"{name}/Cond = LoopCond({name}/less)",
        f"{name}/i/Switch = Switch({name}/i/Merge, {name}/Cond) {{T=int32}}",
        f"{name}/i/value = Identity({name}/i/Switch:1) {{T=int32}}",
        f"{name}/one = Const(^{name}/i/value) {{dtype=int32, value=int32[]:1}}",
        f"{name}/add = AddV2({name}/i/value, {name}/one) {{T=int32}}",
        f"{name}/i/Next = NextIteration({name}/add) {{T=int32}}",
    ]


def nested_loops(n: int) -> str:
    """A loop in a loop in …, with one iteration each."""
    lines: list[str] = []
    for i in range(n):
        start = f"w{i - 1}/value" if i else "x"
        inner = f"w{i + 1}/Exit" if i + 1 < n else f"w{i}/value"
        lines += _loop(f"w{i}", start, f"w{i}/next = Neg({inner}) {_F}")
    return _text([*lines, f"y = Neg(w0/Exit) {_F}"])


def loops(n: int) -> str:
    """Loops in a row."""
    lines: list[str] = []
    for i in range(n):
        body = f"w{i}/next = Neg(w{i}/value) {_F}"
        lines += _loop(f"w{i}", f"w{i - 1}/Exit" if i else "x", body, trips=2)
    return _text([*lines, f"y = Neg(w{n - 1}/Exit) {_F}"])


def independent_loops(n: int) -> str:
    """Loops that start from the same tensor."""
    lines: list[str] = []
    for i in range(n):
        lines += _loop(f"w{i}", "x", f"w{i}/next = Neg(w{i}/value) {_F}", trips=2)
    return _text([*lines, _sum([f"w{i}/Exit" for i in range(n)])])


def loop_variables(n: int) -> str:
    """A loop with many variables."""
    enter = '{T=float32, frame_name="w", is_constant=false, parallel_iterations=10}'
    lines = _counter("w", "x", 2)
    for i in range(n):
        lines += [
            f"v{i}/Enter = Enter(x) {enter}",
            f"v{i}/Merge = Merge(v{i}/Enter, v{i}/Next) {{N=2, T=float32}}",
            f"v{i}/Switch = Switch(v{i}/Merge, w/Cond) {_F}",
            f"v{i}/next = Mul(v{i}/Switch:1, v{(i + 1) % n}/Switch:1) {_F}",
            f"v{i}/Next = NextIteration(v{i}/next) {_F}",
            f"v{i}/Exit = Exit(v{i}/Switch) {_F}",
        ]
    return _text([*lines, _sum([f"v{i}/Exit" for i in range(n)])])


def loop_invariants(n: int) -> str:
    """A loop that reads many invariants."""
    enter = '{T=float32, frame_name="w", is_constant=true, parallel_iterations=10}'
    lines = [f"o{i} = Neg(x) {_F}" for i in range(n)]
    lines += [f"k{i} = Enter(o{i}) {enter}" for i in range(n)]
    lines += [_sum([f"k{i}" for i in range(n)], "k")]
    lines += _loop("w", "x", f"w/next = Mul(w/value, k) {_F}", trips=2)
    return _text([*lines, f"y = Neg(w/Exit) {_F}"])


def loop_body(n: int) -> str:
    """A loop with a long body, whose every value the gradient needs."""
    lines = [f"c{i} = Mul({f'c{i - 1}' if i else 'w/value'}, w/value) {_F}" for i in range(n)]
    return _text(
        [
            *_loop("w", "x", "\n".join([*lines, f"w/next = Neg(c{n - 1}) {_F}"]), trips=2),
            f"y = Neg(w/Exit) {_F}",
        ]
    )


def conditionals_in_a_loop(n: int) -> str:
    """A loop with conditionals in a row."""
    lines, last = [], "w/value"
    for i in range(n):
        lines += [f"p{i} = GreaterEqual({last}, w/value) {_F}"]
        lines += [f"s{i} = Switch({last}, p{i}) {_F}", f"t{i} = Square(s{i}:1) {_F}"]
        lines += [f"m{i} = Merge(s{i}:0, t{i}) {{N=2, T=float32}}"]
        last = f"m{i}"
    body = "\n".join([*lines, f"w/next = Neg({last}) {_F}"])
    return _text([*_loop("w", "x", body, trips=2), f"y = Neg(w/Exit) {_F}"])


def iterations(n: int) -> str:
    """A loop with many iterations."""
    body = f"w/next = Neg(w/value) {_F}"
    return _text([*_loop("w", "x", body, trips=n), f"y = Neg(w/Exit) {_F}"])


def loops_in_conditionals(n: int) -> str:
    """A loop in a conditional in a loop in …"""
    lines: list[str] = []
    for i in range(n):
        source = f"w{i - 1}/value" if i else "x"
        inner = f"m{i + 1}" if i + 1 < n else f"w{i}/value"
        lines += [f"p{i} = GreaterEqual({source}, {source}) {_F}"]
        lines += [f"s{i} = Switch({source}, p{i}) {_F}", f"t{i} = Identity(s{i}:1) {_F}"]
        lines += _loop(f"w{i}", f"t{i}", f"w{i}/next = Neg({inner}) {_F}")
        lines += [f"m{i} = Merge(s{i}:0, w{i}/Exit) {{N=2, T=float32}}"]
    return _text([*lines, f"y = Neg(m0) {_F}"])


# -- functions ------------------------------------------------------------------------------------


def _function(name: str, lines: list[str], result: str) -> str:
    head = f"function {name}(x: float32) -> (y: float32) {{"
    return "\n".join([head, *(f"  {line}" for line in lines), f"  return y = {result}", "}"])


def functions(n: int) -> str:
    """Many functions, each called once."""
    lines, last = [], "x"
    for i in range(n):
        lines += [f"c{i} = PartitionedCall({last}) {{Tin=(float32), Tout=(float32), f=@f{i}}}"]
        last = f"c{i}"
    bodies = [_function(f"f{i}", [f"a = Neg(x) {_F}"], "a:y:0") for i in range(n)]
    return _text([*lines, f"y = Neg({last}) {_F}", *bodies])


def independent_functions(n: int) -> str:
    """Many functions, each called once on the same tensor."""
    attrs = "Tin=(float32), Tout=(float32)"
    lines = [f"c{i} = PartitionedCall(x) {{{attrs}, f=@f{i}}}" for i in range(n)]
    bodies = [_function(f"f{i}", [f"a = Neg(x) {_F}"], "a:y:0") for i in range(n)]
    return _text([*lines, _sum([f"c{i}" for i in range(n)]), *bodies])


def unused_functions(n: int) -> str:
    """Many functions that nothing calls."""
    bodies = [_function(f"f{i}", [f"a = Neg(x) {_F}"], "a:y:0") for i in range(n)]
    return _text([f"y = Neg(x) {_F}", *bodies])


def calls(n: int) -> str:
    """Many calls of one function."""
    lines, last = [], "x"
    for i in range(n):
        lines += [f"c{i} = PartitionedCall({last}) {{Tin=(float32), Tout=(float32), f=@f}}"]
        last = f"c{i}"
    return _text([*lines, f"y = Neg({last}) {_F}", _function("f", [f"a = Neg(x) {_F}"], "a:y:0")])


def nested_calls(n: int) -> str:
    """A function that calls a function that …"""
    bodies = [_function("f0", [f"a = Neg(x) {_F}"], "a:y:0")]
    for i in range(1, n):
        call = f"c = PartitionedCall(x) {{Tin=(float32), Tout=(float32), f=@f{i - 1}}}"
        bodies += [_function(f"f{i}", [call, f"a = Neg(c:output:0) {_F}"], "a:y:0")]
    call = f"c = PartitionedCall(x) {{Tin=(float32), Tout=(float32), f=@f{n - 1}}}"
    return _text([call, f"y = Neg(c) {_F}", *bodies])


def nested_ifs(n: int) -> str:
    """An If in the branch of an If in …"""
    attrs = "Tcond=bool, Tin=(bool, float32), Tout=(float32), else_branch=@leave"
    bodies = []
    for i in range(n):
        head = f"function f{i}(p: bool, x: float32) -> (y: float32) {{"
        bodies += [head, f"  a = Neg(x) {_F}"]
        inner = f"  if = StatelessIf(p, p, a:y:0) {{{attrs}, then_branch=@f{i - 1}}}"
        bodies += [inner] if i else []
        bodies += [f"  return y = {'if:output:0' if i else 'a:y:0'}", "}"]
    call = f"if = StatelessIf(p, p, x) {{{attrs}, then_branch=@f{n - 1}}}"
    return _text([call, f"y = Neg(if) {_F}", *bodies, _ROOT], predicate=True)


def nested_whiles(n: int) -> str:
    """A While in the body of a While in …, with one iteration each."""
    cond = [
        "function less(i: int32, x: float32) -> (y: bool) {",
        "  one = Const() {dtype=int32, value=int32[]:1}",
        "  less = Less(i, one:output:0) {T=int32}",
        "  return y = less:z:0",
        "}",
    ]
    attrs = "T=(int32, float32), cond=@less"
    bodies = []
    for i in range(n):
        bodies += [f"function f{i}(i: int32, x: float32) -> (j: int32, y: float32) {{"]
        bodies += ["  zero = Const() {dtype=int32, value=int32[]:0}"]
        bodies += ["  one = Const() {dtype=int32, value=int32[]:1}"]
        bodies += ["  add = AddV2(i, one:output:0) {T=int32}", f"  a = Neg(x) {_F}"]
        inner = f"  w = StatelessWhile(zero:output:0, a:y:0) {{{attrs}, body=@f{i - 1}}}"
        bodies += [inner] if i else []
        bodies += ["  return j = add:z:0", f"  return y = {'w:output:1' if i else 'a:y:0'}", "}"]
    call = f"w = StatelessWhile(zero, x) {{{attrs}, body=@f{n - 1}}}"
    start = "zero = Const() {dtype=int32, value=int32[]:0}"
    return _text([start, call, f"y = Neg(w:1) {_F}", *bodies, *cond])


def ifs(n: int) -> str:
    """Ifs in a row."""
    attrs = "Tcond=bool, Tin=(float32), Tout=(float32), then_branch=@f, else_branch=@g"
    lines, last = [], "x"
    for i in range(n):
        lines += [f"if{i} = StatelessIf(p, {last}) {{{attrs}}}"]
        last = f"if{i}"
    bodies = [_function("f", [f"a = Neg(x) {_F}"], "a:y:0"), _function("g", [], "x")]
    return _text([*lines, f"y = Neg({last}) {_F}", *bodies], predicate=True)


def case_branches(n: int) -> str:
    """A Case with many branches."""
    branches = ", ".join(f"@f{i}" for i in range(n))
    attrs = f"Tin=(float32), Tout=(float32), branches=({branches}), output_shapes=([])"
    lines = ["k = Const() {dtype=int32, value=int32[]:1}"]
    lines += [f"case = StatelessCase(k, x) {{{attrs}}}", f"y = Neg(case) {_F}"]
    return _text([*lines, *(_function(f"f{i}", [f"a = Neg(x) {_F}"], "a:y:0") for i in range(n))])


FAMILIES: dict[str, Callable[[int], str]] = {
    family.__name__: family
    for family in (
        chain,
        identities,
        backward_names,
        fan_out,
        control_fan_in,
        control_fan_out,
        diamonds,
        shortcuts,
        constants,
        wide_constant,
        same_names,
        devices,
        one_merge,
        nested_conditionals,
        same_predicate,
        conditionals,
        conjunctions,
        nested_loops,
        loops,
        independent_loops,
        loop_variables,
        loop_invariants,
        loop_body,
        conditionals_in_a_loop,
        iterations,
        loops_in_conditionals,
        functions,
        independent_functions,
        unused_functions,
        calls,
        nested_calls,
        nested_ifs,
        nested_whiles,
        ifs,
        case_branches,
    )
}
