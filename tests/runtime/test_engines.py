"""Engines that a backend adds: by name, as objects, with options and a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pytest
import typer

import cfgraph
from cfgraph.cli.option_groups import OptionGroup, including
from cfgraph.cli.run_options import EngineOptions
from cfgraph.errors import UsageError
from cfgraph.extension_index import EXTENSIONS
from cfgraph.runtime.preparation.engines import Engine
from cfgraph.runtime.run_executor import ExecutorReport
from cfgraph.runtime.token_driver import TokenDriver
from tests.conformance import recorded
from tests.sampled import sampled


@dataclass(frozen=True, slots=True)
class RoundsReport:
    """The option of the engine, as what it found."""

    member: ClassVar[str] = "rounds"
    explains: ClassVar[bool] = False

    rounds: int

    def to_json(self) -> int:
        return self.rounds

    def notes(self) -> list[str]:
        return [f"{self.rounds} rounds"]


class RoundsDriver(TokenDriver):
    rounds = 0

    def reports(self) -> list[ExecutorReport]:
        return [*super().reports(), RoundsReport(self.rounds)]


class Rounds(Engine):
    """Runs plans by tokens, and reports its option."""

    token_reason = "the engine is rounds"

    def __init__(self, rounds: int = 1) -> None:
        if rounds < 1:
            raise UsageError(f"{rounds} rounds", hint="use one or more")
        self.rounds = rounds

    def driver(self, run: Any, step: Any, observer: Any, meter: Any) -> RoundsDriver:
        spec, plans = run.token_plans.get()
        driver = RoundsDriver(spec.graph, plans, step, spec.fetches, observer, meter)
        driver.rounds = self.rounds
        return driver


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTENSIONS, "engine", {"rounds": f"{__name__}:Rounds"})


@pytest.mark.usefixtures("named")
def test_an_engine_is_requested_by_its_name(counter: Any) -> None:
    session = cfgraph.Session(cfgraph.load(counter), engine="rounds")
    assert session.run("count", {"n": 4}) == [4]
    assert session.fallback == "the engine is rounds"
    assert session.report("rounds").to_json() == 1


def test_an_engine_may_be_an_object_with_its_options(counter: Any) -> None:
    session = cfgraph.Session(cfgraph.load(counter), engine=Rounds(3))
    assert session.run("count", {"n": 4}) == [4]
    assert session.report("rounds").notes() == ["3 rounds"]


def test_an_unknown_engine_is_refused_with_the_names_that_there_are(counter: Any) -> None:
    with pytest.raises(UsageError, match="unknown engine 'rounds'") as caught:
        cfgraph.Session(cfgraph.load(counter), engine="rounds")
    assert "tokens" in str(caught.value.hint)


def test_an_engine_and_an_option_that_requests_another_one_are_refused(counter: Any) -> None:
    with pytest.raises(UsageError, match="the engine Rounds cannot be combined with costs"):
        cfgraph.Session(cfgraph.load(counter), engine=Rounds(), costs=cfgraph.CostModel())
    with pytest.raises(UsageError, match="expected a name or an Engine"):
        cfgraph.Session(cfgraph.load(counter), engine=3)  # type: ignore[arg-type]


class RoundsOptions(OptionGroup):
    """The option of the engine on the command line."""

    rounds: Annotated[int, typer.Option("--rounds")] = 1

    @staticmethod
    def make_engine(options: Any) -> Rounds:
        return Rounds(options.rounds)


def test_options_of_an_engine_are_those_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTENSIONS, "engine", {"rounds": f"{__name__}:Rounds"})
    monkeypatch.setitem(EXTENSIONS, "options", {"rounds": f"{__name__}:RoundsOptions"})
    group = including(RoundsOptions)(EngineOptions)
    requested = group(engine="rounds", rounds=3).requested
    assert isinstance(requested, Rounds)
    assert requested.rounds == 3
    with pytest.raises(UsageError, match="--rounds requires the engine rounds"):
        _ = group(engine="tokens", rounds=3).requested


def test_the_command_names_the_options_that_an_added_engine_excludes(
    monkeypatch: pytest.MonkeyPatch, command: Any, counter: Any
) -> None:
    monkeypatch.setitem(EXTENSIONS, "engine", {"rounds": f"{__name__}:Rounds"})
    done = command("run", counter, "--feed", "n=2", "--engine", "rounds", "--clock", "virtual")
    assert done.code == 2
    assert "--clock virtual cannot be combined with --engine rounds" in done.err


@pytest.mark.parametrize("case", sampled(recorded.parameters("session"), 40))
def test_recorded_sessions_agree_with_an_engine_that_runs_by_tokens(case: dict[str, Any]) -> None:
    difference = recorded.disagreement(case, engine=Rounds(2))
    assert not difference, difference
