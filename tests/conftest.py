"""What all tests share."""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

# of TensorFlow, before any test imports it
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def asks_for_gpu(expression: str) -> bool:
    """True for a `-m` that selects the tests of a real GPU."""
    return re.search(r"(?<!not )\bgpu\b", expression) is not None


def pytest_configure(config: pytest.Config) -> None:
    """Hide the GPU from TensorFlow, unless it is what the tests are for."""
    if not asks_for_gpu(config.option.markexpr):
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update",
        action="store_true",
        help="write anew what is derived: golden halves and protobuf bindings",
    )

    parser.addoption(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="run one of N of the slow tests, always the same ones",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out most of the slow tests, where a part of them is asked for."""
    every = config.getoption("--every")
    if every < 1:
        raise pytest.UsageError("--every takes a number from 1 on")
    gone = {
        item
        for item in items
        if item.get_closest_marker("slow") and not is_chosen(item.nodeid, every)
    }
    if gone:
        config.hook.pytest_deselected(items=list(gone))
        items[:] = [item for item in items if item not in gone]


def is_chosen(test: str, every: int) -> bool:
    """True for one of so many tests, by their names alone."""
    return zlib.crc32(test.encode()) % every == 0


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether derived files are to be written rather than compared."""
    return bool(request.config.getoption("--update"))


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
    """The card of this machine. Where none can be used `-m gpu` fails, and other runs skip."""
    return found_card(request.config.option.markexpr)


def found_card(expression: str) -> Any:
    """The card, for tests that a `-m` has selected."""
    from cfgraph.errors import Unsupported
    from cfgraph.runtime.devices import card

    try:
        return card.card()
    except Unsupported as error:
        if asks_for_gpu(expression):
            pytest.fail(error.message, pytrace=False)
        pytest.skip(error.message)
