"""Value numbering of predicates, precise enough to recognize equal ones.

A forwarding op has the value of its input; logical ops become formulas; a pure op applied to equal
inputs gives an equal value; a Merge of which exactly one input arrives is true where a true one
arrives, and its index is that of the input; everything else has a distinct value. Values describe
one iteration: a loop variable that may change, its value at the Exit, and random values differ from
all others. A loop variable that the body passes on unchanged has the value that it entered with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, Final

from cfgraph.analysis.deadness.formulas import FALSE, TRUE, Formulas, Symbol
from cfgraph.analysis.deadness.solver import Solver
from cfgraph.analysis.loops.frame import Frames
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import bool_
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import ENTER, EXIT, LOOP_COND, MERGE, NEXT_ITERATION, SWITCH
from cfgraph.ir.traversal import postorder
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import Op, lookup, role_of

_MAX_STEPS: Final = 200
_CARRYING_ROLES: Final = (SWITCH, ENTER, EXIT, NEXT_ITERATION, LOOP_COND)


def _entered_value(merge: Node, frames: Frames, cut: Collection[Output]) -> tuple[Output, ...]:
    """The tensors that enter an invariant loop variable, or an empty tuple if the variable may
    change.

    Every back edge must originate from the Merge itself, through forwarding ops and the Merges of
    conditionals and inner loops. Longer walks than the bound return nothing.
    """
    starts: list[Output] = []
    todo: list[Output] = []
    for tensor in merge.inputs:
        role = role_of(tensor.node)
        if tensor in cut or tensor.node not in frames.of or role not in (ENTER, NEXT_ITERATION):
            return ()
        (starts if role is ENTER else todo).append(tensor.node.inputs[0])
    seen = {Output(merge)}
    while todo:
        tensor = todo.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        sources = () if tensor in cut else _forwarded_inputs(tensor)
        if not sources or tensor.node not in frames.of or len(seen) > _MAX_STEPS:
            return ()
        todo.extend(sources)
    return tuple(starts)


def _exited_value(leaving: Node, frames: Frames, cut: Collection[Output]) -> tuple[Output, ...]:
    """The tensors that enter the invariant loop variable whose value an Exit forwards, or none."""
    tensor = leaving.inputs[0]
    for _ in range(_MAX_STEPS):
        node, port = tensor
        if tensor in cut or node not in frames.of:
            return ()
        if role_of(node) is MERGE:
            return () if port else _entered_value(node, frames, cut)
        sources = _forwarded_inputs(tensor)
        if not sources or role_of(node) in (ENTER, EXIT, NEXT_ITERATION):
            return ()
        tensor = sources[0]
    return ()


def _forwarded_inputs(tensor: Output) -> tuple[Output, ...]:
    """The inputs that an output may forward, or an empty tuple for a computed value."""
    node, port = tensor
    op = lookup(node.op)
    if op is None:
        return ()
    if op.role is MERGE:
        return () if port else node.inputs
    if op.role in _CARRYING_ROLES:
        return node.inputs[:1]
    return (
        (node.inputs[min(port, len(node.inputs) - 1)],)
        if op.aliasing.is_identity and node.inputs
        else ()
    )


_MAX_ELEMENTS: Final = 64  # larger constants are distinct values
_MAX_MERGE_INPUTS: Final = 16  # so are Merges with more inputs
_FORWARDING_ROLES: Final = (SWITCH, ENTER, LOOP_COND)

ValueNumber = int


class _NeededTensors(dict[Output, tuple[Output, ...]]):
    """The tensors that each one is computed from, found when first read."""

    def __init__(self, find: Callable[[Output], tuple[Output, ...]]) -> None:
        self._find = find

    def __missing__(self, tensor: Output) -> tuple[Output, ...]:
        needed = self[tensor] = self._find(tensor)
        return needed


class PredicateValues:
    """Value numbers of tensors, and formulas for Boolean values."""

    def __init__(
        self,
        solver: Solver,
        frames: Frames,
        merge_input_condition: Callable[[Output], int],
        cut: Collection[Output] = (),
        senders: Mapping[Node, Node] | None = None,
        *,
        free_constants: bool = False,
    ) -> None:
        self.solver = solver
        self.formulas: Formulas = solver.formulas
        self.merge_input_condition = merge_input_condition
        self.frames = frames
        self.cut = frozenset(cut)
        self.senders = senders or {}
        self._of: dict[Output, ValueNumber] = {}
        self._numbers: dict[Hashable, ValueNumber] = {}
        self._truth: dict[ValueNumber, int] = {}
        self._bools: dict[int, ValueNumber] = {}
        self.free_constants = free_constants
        self._constants: dict[ValueNumber, Any] = {}
        # of the index of a Merge, the conditions for each value
        self._cases: dict[ValueNumber, dict[int, int]] = {}
        self._named: list[tuple[str, int]] = []  # name and depth, by number
        # values that depend on what arrives at a Merge, and their readers
        self._followed: dict[Output, list[Output]] = {}
        self._requests: dict[Output, list[Node]] = {}

    def truth(self, output: Output, requester: Node) -> int:
        """The formula under which a Boolean tensor is true."""
        return self._truth_of(self._requested(output, requester))

    def equals(self, output: Output, constant: Any, requester: Node) -> int:
        """The formula under which a tensor equals a constant."""
        check_deadline()  # the Switch of a Case may have a million branches
        return self._is(self._requested(output, requester), constant)

    def _requested(self, output: Output, requester: Node) -> ValueNumber:
        number = self.value(output)
        if output in self._followed:
            self._requests.setdefault(output, []).append(requester)
        return number

    def invalidate(self, output: Output) -> list[Node]:
        """Recompute an output of a Merge; returns the Switches that used a value that changed."""
        if output not in self._of or output not in self._followed:
            return []
        if self._decide(output, self._needs(output)) == self._of[output]:
            return []
        requesters: list[Node] = []
        todo = [output]
        while todo:
            at = todo.pop()
            if self._of.pop(at, None) is not None:
                todo.extend(self._followed.pop(at, ()))
                requesters.extend(self._requests.pop(at, ()))
        return requesters

    def value(self, output: Output) -> ValueNumber:
        """The value number of a tensor."""
        if output not in self._of:
            needs = _NeededTensors(self._needs)
            for tensor in postorder(output, needs.__getitem__, self._of):
                self._of[tensor] = self._decide(tensor, needs[tensor])
                self._follow(tensor, needs[tensor])
        return self._of[output]

    def _follow(self, output: Output, needed: tuple[Output, ...]) -> None:
        """Record that a value depends on what arrives at a Merge."""
        for tensor in needed if self._followed else ():
            if tensor in self._followed:
                self._followed[tensor].append(output)
                self._followed.setdefault(output, [])

    # -- dependencies ----------------------------------------------------------------------------

    def _needs(self, output: Output) -> tuple[Output, ...]:
        node, _ = output
        if output in self.cut or output.node not in self.frames.of:
            return ()
        op = lookup(node.op)
        if op is None:
            return ()
        if op.role in _FORWARDING_ROLES:
            return node.inputs[:1]
        if node in self.senders:
            return self.senders[node].inputs[:1]
        if op.role is EXIT:
            return _exited_value(node, self.frames, self.cut)
        if op.role is MERGE:
            if output.port:
                return ()
            closes = self._closes(node)
            return _entered_value(node, self.frames, self.cut) if closes else node.inputs
        if op.aliasing.is_identity:
            return (node.inputs[min(output.port, len(node.inputs) - 1)],)
        return node.inputs if _is_function(op) else ()

    def _closes(self, merge: Node) -> bool:
        """True for a Merge whose inputs belong to different iterations."""
        roles = [lookup(tensor.node.op) for tensor in merge.inputs]
        return any(op is None or op.role in (ENTER, NEXT_ITERATION) for op in roles)

    def _decide(self, output: Output, needed: tuple[Output, ...]) -> ValueNumber:
        needs = [self._of[tensor] for tensor in needed]
        op = lookup(output.node.op)
        if op is None or output in self.cut or output.node not in self.frames.of:
            return self._own(output)
        if op.role is MERGE and output.port:
            return self._index(output)
        if op.role in (MERGE, EXIT):
            if len(set(needs)) == 1:
                return needs[0]
            chosen = self._chosen(output, needs)
            return self._own(output) if chosen is None else self._bool(chosen)
        if op.role in _FORWARDING_ROLES or op.aliasing.is_identity or output.node in self.senders:
            return needs[0]
        if not _is_function(op):
            return self._own(output)
        if (
            op.algebra.boolean_semantics
            and (formula := self._logic(op.algebra.boolean_semantics, output.node, needs))
            is not None
        ):
            return self._bool(formula)
        key = _value_key(output, op, needs)
        return (
            self._own(output) if key is None else self._constant(output, self._number(key, output))
        )

    def _own(self, output: Output) -> ValueNumber:
        return self._number(output, output)

    def _number(self, key: Hashable, output: Output) -> ValueNumber:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._named)
            node, port = output
            frame = self.frames.of_outputs.get(node)
            name = node.name if port == 0 else f"{node.name}:{port}"
            self._named.append((name, frame.depth if frame else 0))
        return number

    def _constant(self, output: Output, number: ValueNumber) -> ValueNumber:
        """Record the value of a scalar constant."""
        tensor = output.node.attrs.get("value")
        if isinstance(tensor, TensorValue) and not output.node.inputs and tensor.shape.rank == 0:
            if self.free_constants:
                number = self._own(output)
            value = tensor.array[()]
            self._constants[number] = value.item() if hasattr(value, "item") else value
        return number

    def _chosen(self, output: Output, needs: list[ValueNumber]) -> int | None:
        """The truth formula of a Merge of Booleans, or None if two inputs may arrive together."""
        if output.dtype is not bool_ or not (arrivals := self._exclusive_arrivals(output)):
            return None
        formulas = self.formulas
        return formulas.any_of(
            formulas.all_of([comes, self._truth_of(number)])
            for comes, number in zip(arrivals, needs, strict=True)
        )

    def _index(self, output: Output) -> ValueNumber:
        """The value number of the index of a Merge: it is that of the input that arrives."""
        arrivals = self._exclusive_arrivals(output)
        number = self._number(("index", *arrivals) if arrivals else output, output)
        if arrivals:
            self._cases[number] = dict(enumerate(arrivals))
        return number

    def _exclusive_arrivals(self, output: Output) -> list[int]:
        """The conditions under which each input of a Merge arrives, none if two may together."""
        inputs = output.node.inputs
        if not 1 < len(inputs) <= _MAX_MERGE_INPUTS or self._closes(output.node):
            return []
        self._followed.setdefault(output, [])
        arrivals, before = list[int](), FALSE
        for comes in map(self.merge_input_condition, inputs):
            if self.solver.is_satisfiable(self.formulas.all_of([before, comes])) is not False:
                return []
            arrivals.append(comes)
            before = self.formulas.any_of([before, comes])
        return arrivals

    # -- Booleans --------------------------------------------------------------------------------

    def _bool(self, formula: int) -> ValueNumber:
        """The value number of a Boolean whose truth is a formula."""
        number = self._bools.get(formula)
        if number is None:
            number = self._bools[formula] = len(self._named)
            self._named.append(("", self.formulas.depth(formula)))
            self._truth[number] = formula
        return number

    def _truth_of(self, number: ValueNumber) -> int:
        formula = self._truth.get(number)
        if formula is None:
            if self._is_known(number):
                formula = TRUE if self._constants[number] else FALSE
            else:
                name, depth = self._named[number]
                symbol = Symbol(name, "predicate", depth)
                formula = self.formulas.symbol(("true", number), symbol)
            self._truth[number] = formula
        return formula

    def _is_known(self, number: ValueNumber) -> bool:
        return number in self._constants and not self.free_constants

    def _is(self, number: ValueNumber, constant: Any) -> int:
        if self._is_known(number):
            return TRUE if self._constants[number] == constant else FALSE
        if number in self._cases:
            return self._cases[number].get(constant, FALSE)
        if isinstance(constant, float) and math.isnan(constant):
            return FALSE
        name, depth = self._named[number]
        shown = (
            constant.decode("utf-8", "backslashreplace")
            if isinstance(constant, bytes)
            else constant
        )
        symbol = Symbol(name, "predicate", depth, shown, number + 1)
        return self.formulas.symbol(("is", number, constant), symbol)

    def _logic(self, boolean_semantics: str, node: Node, needs: list[ValueNumber]) -> int | None:
        """The truth formula of a logical op, or None if an operand is not Boolean."""
        if boolean_semantics in ("not", "and", "or"):
            truths = [self._truth_of(number) for number in needs]
            if boolean_semantics == "not":
                return -truths[0]
            return (
                self.formulas.all_of(truths)
                if boolean_semantics == "and"
                else self.formulas.any_of(truths)
            )
        dtype = node.inputs[0].dtype
        if boolean_semantics == "truth":
            if dtype is bool_:
                return self._truth_of(needs[0])
            numeric = dtype is not None and dtype.kind in ("int", "uint", "float")
            return -self._is(needs[0], 0) if numeric else None
        same = self._same(needs, is_bool=dtype is bool_)
        return -same if same is not None and boolean_semantics == "differ" else same

    def _same(self, needs: list[ValueNumber], *, is_bool: bool) -> int | None:
        if is_bool:
            return self.formulas.same(*(self._truth_of(number) for number in needs))
        for a, b in (needs, reversed(needs)):
            if b in self._constants:
                return self._is(a, self._constants[b])
        return None


def _is_function(op: type[Op]) -> bool:
    """True for an op whose outputs are a function of its inputs."""
    return not (op.effects.stateful or op.effects.random or op.role or op.effects.is_input)


def _value_key(output: Output, op: type[Op], needs: list[ValueNumber]) -> Hashable | None:
    """A key that equal values share, or None for a value that cannot be compared."""
    attrs = []
    for name, value in sorted(output.node.attrs.items()):
        if not name.startswith("_"):
            frozen = _hashable_attr(value)
            if frozen is None:
                return None
            attrs.append((name, frozen))
    inputs = sorted(needs) if op.algebra.commutes else needs
    return output.node.op, output.port, tuple(attrs), tuple(inputs)


def _hashable_attr(value: Any) -> Hashable | None:
    """A hashable form of an attribute value, or None if it is too large."""
    if isinstance(value, TensorValue):
        size = value.shape.elements
        if size is None or size > _MAX_ELEMENTS:
            return None
        array = value.array
        content = tuple(array.ravel()) if array.dtype == object else array.tobytes()
        return str(value.dtype), str(value.shape), content
    return repr(value)
