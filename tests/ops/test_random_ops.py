from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.build.builder import Builder
from cfgraph.errors import ExecutionError
from cfgraph.ops.families.stateless_random import keyed_stream, stream_of_key, stream_of_seed
from cfgraph.ops.kernels import array_namespace, philox
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


@pytest.mark.parametrize("op", ["RandomUniform", "RandomStandardNormal", "TruncatedNormal"])
def test_large_draws_take_little_memory_beside_their_results(op: str) -> None:
    b = Builder()
    drawn = getattr(b, op)(b.placeholder("size", "int32", [1]), dtype="float32")
    b.Max(drawn, b.const([0]), name="largest")
    session = cfgraph.Session(b.graph)
    session.run("largest", {"size": shape(1)})
    tracemalloc.start()
    try:
        session.run("largest", {"size": shape(1 << 20)})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * 4 * 2**20


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


BIG = 2**64 - 1
DRAWS = [
    (philox.draw_uniform, ("float16", "float32", "float64")),
    (philox.draw_normal, ("float16", "float32", "float64")),
    (philox.draw_truncated_normal, ("float32", "float64")),
    (philox.draw_full_range_integers, ("int32", "int64", "uint32", "uint64")),
]


@pytest.mark.parametrize(
    "count", [6, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1, 1001))]
)
@pytest.mark.parametrize(
    ("draw", "dtype"), [(draw, dtype) for draw, dtypes in DRAWS for dtype in dtypes]
)
def test_a_traced_stream_has_the_same_numbers(draw: Any, dtype: str, count: int) -> None:
    jax: Any = pytest.importorskip("jax", reason="jax (extra `xla`) is absent")
    key, counter = np.array([BIG - 5], np.uint64), np.array([BIG - 3, BIG], np.uint64)

    def traced(key: Any, counter: Any) -> Any:
        stream = keyed_stream(jax.numpy, key, counter, np.int32(1))
        return draw(stream, count, np.dtype(dtype))

    with jax.enable_x64(True), array_namespace.collected_checks():
        ours = np.asarray(jax.jit(traced)(key, counter))
    expected = draw(stream_of_key(key, counter, np.int32(1)), count, np.dtype(dtype))
    assert ours.dtype == expected.dtype
    if draw in (philox.draw_normal, philox.draw_truncated_normal):
        rtol = 1e-3 if dtype == "float16" else 1e-5
        np.testing.assert_allclose(ours, expected, rtol, 1e-6)
    else:
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_a_draw_starts_as_a_longer_one(dtype: str) -> None:
    draw = philox.draw_full_range_integers if dtype == "int32" else philox.draw_uniform
    stream = philox.PhiloxStream(BIG - 5, 7, BIG)
    longest = draw(stream, 1001, np.dtype(dtype))
    for count in (1, 4, 5, 400):
        assert np.array_equal(draw(stream, count, np.dtype(dtype)), longest[:count])


def sampler(bounds: tuple[int, int] = (-7, 5)) -> cfgraph.Graph:
    """A loop that splits a seed, and draws in each iteration."""
    b = Builder()
    seed = b.placeholder("seed", "int64", [2])

    def body(i: Any, seed: Any, total: Any, words: Any) -> Any:
        key, counter = b.StatelessRandomGetKeyCounter(seed)
        rest = key, counter, b.const(np.int32(1))
        split = b.StatelessRandomUniformFullIntV2(b.const([2]), *rest, dtype="int64")
        drawn = b.StatelessRandomNormalV2(b.const([4]), *rest, dtype="float32")
        low, high = (b.Add(b.const(np.int64(bound)), b.Sub(i, i)) for bound in bounds)
        ints = b.StatelessRandomUniformIntV2(b.const([4]), *rest, low, high)
        return b.Add(i, b.const(np.int64(1))), split, b.Add(total, drawn), b.Add(words, ints)

    zeros = b.const(np.zeros(4, np.float32)), b.const(np.zeros(4, np.int64))
    start = (b.const(np.int64(0)), seed, *zeros)
    loop = b.while_loop(lambda i, *rest: b.Less(i, b.const(np.int64(20))), body, start)
    for name, value in zip(("seeds", "total", "words"), loop[1:], strict=True):
        b.Identity(value, name=name)
    return b.graph


def test_engines_draw_the_same_in_a_loop() -> None:
    pytest.importorskip("jax", reason="jax (extra `xla`) is absent")
    feeds, fetches = {"seed": np.array([-(2**62), 9])}, ["seeds", "total", "words"]
    sessions = {
        engine: cfgraph.Session(sampler(), engine=engine)
        for engine in ("tokens", "compiled", "xla")
    }
    results = {engine: run.run(fetches, feeds) for engine, run in sessions.items()}
    for plain, generated, compiled in zip(*results.values(), strict=True):
        np.testing.assert_array_equal(plain, generated)
        if plain.dtype.kind == "f":
            np.testing.assert_allclose(compiled, plain, 1e-5, 1e-5)
        else:
            np.testing.assert_array_equal(compiled, plain)
    (cluster,) = sessions["xla"].cluster_runner.clusters.values()
    assert [compilation.refused for compilation in cluster.compilations] == [""]
    assert cluster.fused == 0


@pytest.mark.parametrize("engine", ["tokens", "compiled", "xla"])
def test_bounds_in_the_wrong_order_are_an_error_in_each_engine(engine: str) -> None:
    if engine == "xla":
        pytest.importorskip("jax", reason="jax (extra `xla`) is absent")
    session = cfgraph.Session(sampler((3, 3)), engine=engine)
    with pytest.raises(ExecutionError, match="Need minval < maxval"):
        session.run("words", {"seed": np.array([1, 2])})
