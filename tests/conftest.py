"""Options, sampling, and fixtures shared by all tests."""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import signal
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests import sampled
from tests.command_fixtures import command, counter, empty, graphs, lstm  # noqa: F401

# of TensorFlow, before any test imports it
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# tests write nothing to the folders of the user
os.environ["CFGRAPH_CACHE"] = os.devnull
# oneDNN's kernels and errors differ by processor: on some, convolution gradients fail
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
_SLOW_MODULE = re.compile(r"^pytestmark = .*\bslow\b", flags=re.MULTILINE)
_TESTS = Path(__file__).parent
_RANKS = ("backends", "integrations")
# by their folders, whose names are markers
PLUG_INS = {"benchmarks", *(path.name for rank in _RANKS for path in _TESTS.glob(f"{rank}/[a-z]*"))}


def selects(marker: str, expression: str) -> bool:
    """True for a `-m` that selects the tests with a marker."""
    return re.search(rf"(?<!not )\b{marker}\b", expression) is not None


def is_sweep(expression: str, sweep: bool) -> bool:
    """True where slow tests are built and collected: for --sweep, or a `-m` that selects them."""
    return sweep or selects("slow", expression)


def plug_in(path: Path) -> str:
    """The backend or integration in whose folder a file is, or `` for what tests the core."""
    first, *rest = path.relative_to(_TESTS).parts
    if first in _RANKS:
        return rest[0]
    return first if first in PLUG_INS else ""


def pytest_configure(config: pytest.Config) -> None:
    """Hide the GPU from TensorFlow, unless it is what the tests are for; note what is a sweep.

    The folders of backends and integrations are markers.
    """
    for name in sorted(PLUG_INS):
        config.addinivalue_line("markers", f"{name}: the tests of its folder")
    if not selects("card", config.option.markexpr):
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    sampled.sweep = is_sweep(config.option.markexpr, config.getoption("--sweep"))
    config.pluginmanager.register(Skipped(config), "skipped")


class Skipped:
    """Note the tests and modules that a run skips; `--skipped` runs these, with extras perhaps."""

    key = "cfgraph/skipped"

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.tests = set[str]()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.tests.add(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            # one stands for all cases of a comparison with TensorFlow
            is_one_of_many = "interop" in report.keywords
            self.tests.add(without_case(report.nodeid) if is_one_of_many else report.nodeid)

    def pytest_sessionfinish(self) -> None:
        # without the plugin of this cache (-p no:cacheprovider) nothing is noted
        cache = getattr(self.config, "cache", None)
        if cache and not hasattr(self.config, "workerinput") and not self.config.option.skipped:
            cache.set(self.key, sorted(self.tests))

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        if config.option.skipped and config.cache:
            names = set(config.cache.get(self.key, []))
            deselect(items, lambda item: not names & set(names_of(item.nodeid)))


def without_case(test: str) -> str:
    """The name of a test without that of its parameters."""
    return test.split("[", maxsplit=1)[0]


def names_of(test: str) -> tuple[str, str, str]:
    """The names of a test, of all its cases, and of its module."""
    return test, without_case(test), test.split("::", maxsplit=1)[0]


def deselect(items: list[pytest.Item], is_unwanted: Callable[[pytest.Item], bool]) -> None:
    """Take tests out of a run, and say so in its summary."""
    gone = [item for item in items if is_unwanted(item)]
    if gone:
        gone[0].config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if not is_unwanted(item)]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of a backend or integration by its name."""
    if name := plug_in(item.path):
        item.add_marker(name)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--core",
        action="store_true",
        help="run only the smallest checks of backends and integrations; `-m NAME` runs all of one",
    )

    parser.addoption(
        "--update",
        action="store_true",
        help="rewrite derived files: golden outputs, protobuf bindings, and the op index",
    )

    parser.addoption(
        "--sweep",
        action="store_true",
        help="build and collect the slow tests, too; `-m slow` runs nothing else",
    )

    parser.addoption(
        "--skipped",
        action="store_true",
        help="run only what the last run without this option skipped",
    )

    parser.addoption(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="run one of N of the slow tests, the same ones in the same turn",
    )

    parser.addoption(
        "--turn",
        type=int,
        default=0,
        metavar="NUMBER",
        help="run other slow tests than --every does in the turn before: all of them in N turns",
    )


class _Backwards(pytest.Dir):
    """A folder whose modules are imported from the last on."""

    def collect(self) -> list[Any]:
        return [*super().collect()][::-1]


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Let every other worker import the modules backwards.

    In a fresh clone, each of two workers then finds half of them compiled by the other.
    """
    worker = getattr(parent.config, "workerinput", {"workerid": "gw0"})["workerid"]
    is_odd = int(worker.removeprefix("gw")) % 2
    return _Backwards.from_parent(parent, path=path) if is_odd else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without collecting garbage, and keep the collector off them afterwards.

    Each full collection of a run went over a million objects of modules and tests: half a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow tests unless this is a sweep, and all but a part of them with --every.

    With --core, of each backend and integration the smallest checks alone are left.

    The modules next to this one run first: theirs are long tests, and results that tests share. Of
    workers that are done, one takes tests of another from the end.
    """
    items.sort(key=lambda item: (item.path.parent != _TESTS, item.path))
    every, turn = config.getoption("--every"), config.getoption("--turn")
    if every < 1:
        raise pytest.UsageError("--every takes a number from 1 on")
    if names := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        # the workers of pytest-xdist must collect the same names
        raise pytest.UsageError(f"names of tests have addresses: {names[0]}")
    if config.option.core:
        deselect(items, lambda item: is_of_plug_in(item) and not has(item, "smallest"))
    if importlib.util.find_spec("tensorflow") is None:
        deselect_all_but_one_case_of_interop_tests(items)
    deselect(
        items,
        lambda item: (
            has(item, "slow") and not (sampled.sweep and is_chosen(item.nodeid, every, turn))
        ),
    )


def has(item: pytest.Item, marker: str) -> bool:
    """True for a test with a marker."""
    return item.get_closest_marker(marker) is not None


def is_of_plug_in(item: pytest.Item) -> bool:
    """True for a test of a backend or integration, in whichever folder."""
    return any(mark.name in PLUG_INS for mark in item.iter_markers())


def deselect_all_but_one_case_of_interop_tests(items: list[pytest.Item]) -> None:
    """Skip a test once rather than thousands of times where TensorFlow is not installed."""
    first = dict[str, str]()
    for item in items:
        if has(item, "interop"):
            first.setdefault(without_case(item.nodeid), item.nodeid)
    deselect(items, lambda item: first.get(without_case(item.nodeid), item.nodeid) != item.nodeid)


def is_chosen(test: str, every: int, turn: int = 0) -> bool:
    """True for one of so many tests, by their names; each is chosen in one of so many turns."""
    return (zlib.crc32(test.encode()) + turn) % every == 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Report of a test in a worker only its call, and what did not pass before or after it.

    To send and receive the other reports took as long as a small test. `--durations` needs them.
    """
    options = item.config.option
    if not hasattr(item.config, "workerinput") or options.durations is not None or options.xmlpath:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over modules without a test for this run, without importing them.

    These are modules that are slow as a whole, and those of other ranks for --core and `-m NAME`.
    """
    if collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    if not sampled.sweep and _SLOW_MODULE.search(text):
        return True
    name, expression = plug_in(collection_path), config.option.markexpr
    is_other = expression in PLUG_INS and name != expression and f"mark.{expression}" not in text
    return is_other or (config.option.core and name and "mark.smallest" not in text) or None


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """True if derived files are written rather than compared."""
    return bool(request.config.getoption("--update"))


@pytest.fixture
def signals_enabled() -> Iterator[None]:
    """Deliver signals to processes even if the tests run in the background or under nohup."""
    actions = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, action) for number, action in actions.items()}
    yield
    for number, action in before.items():
        signal.signal(number, action)


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of the checkout."""
    return Path(__file__).parent.parent


@pytest.fixture(scope="session")
def fixtures(root: Path) -> Path:
    """The folder of graphs, golden files and recorded cases."""
    return root / "fixtures"


@pytest.fixture(scope="session")
def real_card(request: pytest.FixtureRequest) -> Any:
    """The card of this machine. Where none can be used `-m card` fails, and other runs skip."""
    return require_gpu(request.config.option.markexpr)


def require_gpu(expression: str) -> Any:
    """The card, for tests that a `-m` has selected."""
    from cfgraph.backends.gpu import context
    from cfgraph.errors import Unsupported

    try:
        return context.gpu_context()
    except Unsupported as error:
        if selects("card", expression):
            pytest.fail(error.message, pytrace=False)
        pytest.skip(error.message)
