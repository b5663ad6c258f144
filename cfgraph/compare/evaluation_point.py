"""A graph at one point: fixed inputs and variables, some of which may vary between runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from cfgraph.analysis.reachability import ancestors
from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.compare.functional_interpreter import run_functional
from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Graph, Node
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.opdef.op import lookup
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.feeds.conversion import feed_value
from cfgraph.runtime.session import Session
from cfgraph.runtime.state import State
from cfgraph.runtime.trace.events import Observer


class EvaluationPoint:
    """Repeated runs of a graph at the same inputs.

    Every run starts from the same variables and draws the same random numbers, independently of
    earlier runs. `state` has initial values of variables; `inits` are nodes that run once in order.
    """

    def __init__(
        self,
        graph: Graph,
        feeds: Mapping[str, Any],
        inits: Iterable[str] = (),
        *,
        state: State | None = None,
        seed: int = 0,
        max_iterations: int | None = None,
        timeout: float | None = None,
    ) -> None:
        self.graph = graph
        self.feeds = {graph.tensor(name).name: value for name, value in feeds.items()}
        self._seed = seed
        self._limits: dict[str, Any] = {"max_iterations": max_iterations, "timeout": timeout}
        self._state = State() if state is None else state.copy()
        # random ops depend on the number of runs of a session
        self._can_reuse_session = not any(_is_random(node) for node in graph)
        self._session = self._new_session()
        for name in inits:
            self._session.run((), self.feeds, [name], **self._limits)
        self._initial_values = {cell: cell.value for cell in self.cells().values()}

    def variables(self, required: Iterable[Node]) -> dict[Node, Variable]:
        """Return the variables that nodes need, created if necessary."""
        nodes = [node for node in ancestors(self.graph, required) if is_variable(node)]
        if nodes:
            self._session.run((), self.feeds, [node.name for node in nodes])
        return {node: self._cell(node) for node in nodes}

    def set(self, cell: Variable, value: Any) -> None:
        """Set the value of a variable at the start of every run."""
        self._initial_values[cell] = value

    def value(self, cell: Variable) -> Any:
        """Return the value of a variable at the start of every run, None if uninitialized."""
        return self._initial_values.get(cell)

    def cells(self) -> dict[tuple[str, str], Variable]:
        """Return all variables by container and name."""
        return dict(self._state.variables())

    def run(
        self,
        fetches: Sequence[str],
        replaced: Mapping[str, Any] | None = None,
        *,
        targets: Sequence[str] = (),
        trace: Observer | None = None,
    ) -> list[Any]:
        """Return values of tensors (None if dead), with other tensors and variables replaced."""
        for cell, value in self._initial_values.items():
            cell.value = value
        feeds = dict(self.feeds)
        for name, value in (replaced or {}).items():
            tensor = self.graph.tensor(name)
            if is_variable(tensor.node):
                self._cell(tensor.node).value = value
            else:
                feeds[tensor.name] = value
        if not self._can_reuse_session:
            self._session = self._new_session()
        return self._session.run(
            fetches, feeds, targets, allow_dead=True, trace=trace, **self._limits
        )

    def run_functional(
        self, fetches: Sequence[str], targets: Sequence[str] = ()
    ) -> list[Any] | None:
        """Return the results of `run` without lowering, None if that is not supported."""
        for cell, value in self._initial_values.items():
            cell.value = value
        graph = self.graph
        fed = [(graph.tensor(name), value) for name, value in self.feeds.items()]
        return run_functional(
            graph,
            [graph.tensor(name) for name in fetches],
            [graph[name.removeprefix("^")] for name in targets],
            {tensor: feed_value(graph, tensor, value) for tensor, value in fed},
            RunStep(self._state, self._seed),
            **self._limits,
        )

    def _new_session(self) -> Session:
        return Session(self.graph, state=self._state, seed=self._seed)

    def _cell(self, node: Node) -> Variable:
        """Return the variable of a node. Raises Unsupported for a variable without a name."""
        key = variable_key(node)
        if key not in set(self._state):
            message = f"every run creates a new variable for {node.name}"
            raise Unsupported(message, node=node, hint="give it a shared_name")
        cell = self._state.get_or_make(*key, _missing_variable)
        assert isinstance(cell, Variable)
        self._initial_values.setdefault(cell, cell.value)
        return cell


def _is_random(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and op.effects.random and op.effects.stateful


def _missing_variable() -> NoReturn:
    message = "the state has lost an object"
    raise AssertionError(message)
