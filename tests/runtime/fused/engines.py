"""Engines that a test of a real card may want, and may not find."""

from __future__ import annotations

import pytest

from cfgraph.errors import Unsupported
from cfgraph.runtime.compiled import on_card
from cfgraph.runtime.devices.card import Card


def need(engine: str, card: Card) -> None:
    """Skip, with the reason, where XLA is asked for and jax does not use the card."""
    if engine == "xla":
        try:
            on_card(card.lane("gpu:0"))
        except Unsupported as error:
            pytest.skip(f"{error.message}; {error.hint}")
