"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

# of TensorFlow, before any test imports it
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update",
        action="store_true",
        help="write anew what is derived: golden halves and protobuf bindings",
    )


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
def real_card() -> Any:
    """The card of this machine. Skips, with the reason, where none can be used."""
    from cfgraph.errors import Unsupported
    from cfgraph.runtime.devices.card import card

    try:
        return card()
    except Unsupported as error:
        pytest.skip(error.message)
