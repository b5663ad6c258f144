"""Follow a value through calls: `python -m tests.walks [NAME]`.

A walk runs a command or a call of the library, and looks at the arguments of each call of a
function of cfgraph, other than `self`; a function counts once. It counts the rooms that the value
enters, and the returns to a room that it had left. A value that enters many rooms, or returns
often, is known to code that could do without.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from tests.measures import room_of

ROOT: Final = Path(__file__).parent.parent
GRAPHS: Final = ROOT / "fixtures" / "graphs"


@dataclass(slots=True)
class Walk:
    """The rooms that a value has entered, in order; the calls that received it; the returns."""

    rooms: list[str] = field(default_factory=list)
    calls: int = 0
    returns: int = 0
    last: str = ""

    def enter(self, room: str) -> None:
        """Count a call in a room."""
        self.calls += 1
        if room == self.last:
            return
        if room in self.rooms:
            self.returns += 1
        else:
            self.rooms.append(room)
        self.last = room

    def __str__(self) -> str:
        rooms = ", ".join(self.rooms)
        return f"{len(self.rooms)} rooms, {self.returns} returns, {self.calls} calls: {rooms}"


def follow(work: Callable[[], object], is_value: Callable[[Any], bool]) -> Walk:
    """Run `work`, and follow the arguments that are the value."""
    walk = Walk()
    entered: set[CodeType] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        path = Path(code.co_filename)
        if code in entered or not path.is_relative_to(ROOT):
            return
        room = room_of(path.relative_to(ROOT).as_posix())
        names = {*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]} - {"self"}
        local = frame.f_locals
        if room not in (None, "tests") and any(is_value(local.get(name)) for name in names):
            entered.add(code)
            walk.enter(str(room))

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return walk


def _command(*args: str) -> Callable[[], object]:
    """A call of a command, whose output is dropped."""
    from cfgraph.cli.command_line import run

    def work() -> None:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            assert run(args) == 0

    return work


def _is_text(value: Any, text: str) -> bool:
    """True for a text, or a list of it alone; an array equals no text."""
    only = value[0] if isinstance(value, list) and len(value) == 1 else value
    return isinstance(only, str) and only == text


def outcome_of_run() -> Walk:
    """The outcome of `run`, and what it consists of, until it is printed."""
    from cfgraph.comparison.value_difference import ValueDifference
    from cfgraph.console.runs.run_report import Outcome
    from cfgraph.runtime.cluster_runner import ClusterRunner
    from cfgraph.runtime.preparation.prepared_runs import RunResult

    parts = Outcome, RunResult, ClusterRunner, ValueDifference
    run = _command("run", str(GRAPHS / "counter.pb"), "--feed", "n=3", "--explain-engine")
    return follow(run, lambda value: isinstance(value, parts))


def feeds_of_run() -> Walk:
    """The text of `--feed`, until it is an array."""
    from cfgraph.cli.run_options import FeedOptions

    def is_feed(value: Any) -> bool:
        return isinstance(value, FeedOptions) or _is_text(value, "n=3")

    return follow(_command("run", str(GRAPHS / "counter.pb"), "--feed", "n=3"), is_feed)


def fetches_of_run() -> Walk:
    """The text of `--fetch`, until it is a tensor."""
    from cfgraph.cli.transform_options import FetchOptions

    def is_fetch(value: Any) -> bool:
        return isinstance(value, FetchOptions) or _is_text(value, "count")

    line = ("run", str(GRAPHS / "counter.pb"), "--feed", "n=3", "--fetch", "count")
    return follow(_command(*line), is_fetch)


def devices_of_partition() -> Walk:
    """The text of `--devices`, until it is a list of devices, and that list."""
    names = ("cpu:0-1", "/job:localhost/replica:0/task:0/device:CPU:0")

    def is_devices(value: Any) -> bool:
        first = value[0] if isinstance(value, list | tuple) and value else value
        return isinstance(first, str) and first in names

    line = ("partition", str(GRAPHS / "counter.pb"), "--devices", names[0], "-o", os.devnull)
    return follow(_command(*line, "--to", "pb"), is_devices)


def ys_of_gradients() -> Walk:
    """The names of the tensors whose gradients are added, and the tensors."""
    import cfgraph
    from cfgraph.ir.node import Output

    graph = cfgraph.load(GRAPHS / "lstm.pb")
    loss = graph["loss"]

    def is_ys(value: Any) -> bool:
        first = value[0] if isinstance(value, list | tuple) and value else value
        if isinstance(first, str):
            return first == "loss:0"
        return isinstance(first, Output) and getattr(first, "node", None) is loss

    return follow(lambda: cfgraph.gradients(graph, ["loss:0"], ["W:0"]), is_ys)


def while_by_xla() -> Walk:
    """The node of a functional loop, and its copies, until XLA runs it."""
    import cfgraph
    from cfgraph.ir.node import Node

    graph = cfgraph.load(GRAPHS / "while_functional.pb")

    def is_loop(value: Any) -> bool:
        return isinstance(value, Node) and getattr(value, "op", "") in ("StatelessWhile", "While")

    session = cfgraph.Session(graph, engine="xla")
    return follow(lambda: session.run("out", {"n": 3}), is_loop)


WALKS: Final[dict[str, Callable[[], Walk]]] = {
    walk.__name__: walk
    for walk in (
        outcome_of_run,
        feeds_of_run,
        fetches_of_run,
        devices_of_partition,
        ys_of_gradients,
        while_by_xla,
    )
}


if __name__ == "__main__":
    for name in sys.argv[1:] or WALKS:
        print(f"{name}: {WALKS[name]()}")
