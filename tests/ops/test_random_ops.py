from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cfgraph.ops.families.stateless_random import stream_of_seed
from cfgraph.ops.opdef import philox
from tests.ops.harness import case, run_ours

COUNT = 20_000


def draw(op: str, *inputs: Any, **attrs: Any) -> Any:
    return run_ours(case(op, inputs, attrs))[0].astype(np.float64)


def shape(*sizes: int) -> Any:
    return np.array(sizes, np.int32)


def test_philox_returns_the_numbers_of_its_authors() -> None:
    # the vectors of Salmon et al.'s Random123
    zeros = philox.PhiloxStream(0, 0, 0).words([0])[0]
    assert [f"{word:08x}" for word in zeros] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
    ones = philox.PhiloxStream(2**64 - 1, 2**64 - 1, 2**64 - 1).words([0])[0]
    assert [f"{word:08x}" for word in ones] == ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"]


def test_a_stream_goes_on_where_it_is_skipped_to() -> None:
    stream = philox.PhiloxStream(7, 2**64 - 3, 5)
    assert np.array_equal(stream.sequence(40)[20:], stream.skip(5).sequence(20))


def test_every_bit_of_a_seed_counts() -> None:
    seeds = [np.array([1 << k, 0]) for k in range(63)] + [np.array([0, 1 << k]) for k in range(63)]
    assert len({stream_of_seed(seed) for seed in seeds}) == len(seeds)


@pytest.mark.parametrize(
    ("op", "mean", "deviation"),
    [
        ("RandomUniform", 0.5, 12**-0.5),
        ("RandomStandardNormal", 0, 1),
        ("TruncatedNormal", 0, 0.8796),
    ],
)
def test_numbers_are_spread_as_they_should(op: str, mean: float, deviation: float) -> None:
    drawn = draw(op, shape(COUNT), dtype=np.float32)
    assert drawn.mean() == pytest.approx(mean, abs=0.03)
    assert drawn.std() == pytest.approx(deviation, rel=0.03)


def test_integers_are_all_as_likely() -> None:
    drawn = draw("RandomUniformInt", shape(COUNT), np.int32(-3), np.int32(5))
    counts = np.bincount(drawn.astype(int) + 3, minlength=8)
    assert counts.min() > 0.9 * COUNT / 8
    assert counts.max() < 1.1 * COUNT / 8


def test_numbers_far_in_the_tail_of_the_normal_keep_to_their_bounds() -> None:
    bounds = [np.float64(value) for value in (0, 1, 9, 10)]
    drawn = draw("ParameterizedTruncatedNormal", shape(COUNT), *bounds)
    assert drawn.min() >= 9
    assert drawn.mean() == pytest.approx(9.1085, abs=0.01)


def test_gamma_and_poisson_have_their_means() -> None:
    means = np.array([0.5, 4.0])
    gamma = draw("RandomGamma", shape(COUNT), means)
    poisson = draw("RandomPoissonV2", shape(COUNT), means)
    np.testing.assert_allclose(gamma.mean(axis=0), means, 0.05)
    np.testing.assert_allclose(gamma.var(axis=0), means, 0.1)
    np.testing.assert_allclose(poisson.mean(axis=0), means, 0.05)
    np.testing.assert_allclose(poisson.var(axis=0), means, 0.1)


def test_an_invalid_rate_returns_nan() -> None:
    rates = np.array([-1.0, np.nan, np.inf, 1.0])
    drawn = draw("RandomPoisson", shape(3), rates)
    assert np.isnan(drawn[:, :3]).all()
    assert not np.isnan(drawn[:, 3]).any()


def test_classes_come_with_their_probabilities() -> None:
    logits = np.log(np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 1e-30]]))
    drawn = draw("Multinomial", logits, np.int32(COUNT)).astype(int)
    shares = [np.bincount(row, minlength=3) / COUNT for row in drawn]
    np.testing.assert_allclose(shares, [[0.1, 0.2, 0.7], [0.5, 0.5, 0]], atol=0.02)


def test_a_shuffle_keeps_the_rows() -> None:
    rows = np.arange(60).reshape(30, 2)
    drawn = draw("RandomShuffle", rows)
    assert not np.array_equal(drawn, rows)
    assert np.array_equal(drawn[drawn[:, 0].argsort()], rows)
