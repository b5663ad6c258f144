"""The executor of docs/semantics.md, run on recorded sessions, graphs of the paper, and errors."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cfgraph
from cfgraph.errors import ExecutionError
from cfgraph.runtime.engine.references import dereference
from cfgraph.runtime.preparation.engines import Engine
from tests.conformance import recorded
from tests.sampled import sampled

PAGE = Path(__file__).parents[2] / "docs" / "semantics.md"
# it has no queues, whose kernels wait
BLOCKING = re.compile("Queue|Barrier|Stage|Staging")
SESSIONS = recorded.parameters("session", lambda case: not any(map(BLOCKING.search, case["ops"])))


def code_of_page() -> dict[str, Any]:
    blocks = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    names: dict[str, Any] = {}
    exec(compile("".join(blocks), str(PAGE), "exec"), names)
    return names


CODE = code_of_page()


class ReferenceExecutor(CODE["Executor"]):  # type: ignore[misc]
    """The executor of the page, where edges may carry references to variables."""

    def __init__(self, plan: Any, compute: Any, feeds: Any) -> None:
        super().__init__(plan.nodes, plan.frames, compute, feeds)

    def fire(self, node: Any, tag: Any, inputs: Any) -> None:
        plan = self.nodes[node]
        if inputs is not CODE["DEAD"]:
            inputs = tuple(
                dereference(value)
                if slot in plan.deref_slots and slot not in plan.forwarded_slots
                else value
                for slot, value in enumerate(inputs)
            )
        super().fire(node, tag, inputs)


class PageDriver:
    """Runs a plan by the executor of the page; a run makes one."""

    elapsed, stopped, allow_dead, fallback, is_interpreted = None, False, False, "", False
    is_generated = False

    def __init__(self, spec: Any, plan: Any, step: Any) -> None:
        self.fetches, self.feeds, self.plan, self.step = spec.fetches, spec.feeds, plan, step
        self.results: list[Any] = []
        self.run_start = 0

    def compute(self, node: Any, tag: Any, inputs: tuple[Any, ...]) -> list[Any]:
        plan, step, arguments = self.plan.nodes[node], self.step, [*inputs]
        if plan.op.effects.stateful:
            indices = tuple(index for _, index in tag)
            step.node = node
            step.iteration = SimpleNamespace(
                index=(indices or (0,))[-1], indices=indices, path=str(tag)
            )
            arguments.insert(0, step)
        result = plan.kernel(*arguments)
        return [result] if plan.outputs == 1 else list(result or ())

    def run(self, feeds: list[Any], pick: object) -> None:
        plan = self.plan
        executor = ReferenceExecutor(plan, self.compute, self.feeds)
        values = executor.run(dict(zip(self.feeds, feeds, strict=True)))
        if any(values.get(fetch, CODE["DEAD"]) is CODE["DEAD"] for fetch in self.fetches):
            raise ExecutionError("a fetch has no value")
        self.results = [dereference(values[fetch]) for fetch in self.fetches]

    def clear(self) -> None:
        self.results = []

    def fetched_to_host(self, index: int, value: Any) -> Any:
        return value

    def reports(self) -> list[Any]:
        return []

    def quiescent_state(self) -> Any:
        raise NotImplementedError


class Page(Engine):
    token_reason = "the page defines what it does"

    def driver(self, run: Any, step: Any, observer: object, meter: object) -> Any:
        spec, (plan,) = run.token_plans.get()
        return PageDriver(spec, plan, step)


@pytest.mark.parametrize("case", sampled(SESSIONS, 60))
def test_the_executor_of_the_page_agrees_with_tensorflow(case: dict[str, Any]) -> None:
    difference = recorded.disagreement(case, engine=Page(), devices="cpu:0")
    assert not difference, difference


@pytest.mark.parametrize(
    ("name", "fetch", "feeds"),
    [
        ("counter.pb", "count", {"n": 3}),
        pytest.param("nested.pb", "sum", {}, marks=pytest.mark.slow),
        ("while_functional.pb", "out", {"n": 3}),
    ],
)
def test_the_executor_of_the_page_runs_the_sample_graphs(
    name: str, fetch: str, feeds: dict[str, int], fixtures: Path
) -> None:
    graph = cfgraph.load(fixtures / "graphs" / name)
    engines = (Page(), "tokens")
    page, tokens = (cfgraph.Session(graph, engine=engine).run(fetch, feeds) for engine in engines)
    assert [value.tolist() for value in page] == [value.tolist() for value in tokens]


def test_the_code_of_the_page_is_short() -> None:
    blocks = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    assert sum(block.count("\n") for block in blocks) < 190
