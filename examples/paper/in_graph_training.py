"""Q-learning on a chain of states, as one loop with conditionals and as graphs of its parts.

Each step acts at random or by the network, stores the transition, trains every `TRAIN` steps on
transitions that it draws, and every `COPY` steps copies the network to the one that evaluates.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from cfgraph.build.builder import Builder
from cfgraph.ir.graph import Graph

# a training step and a copy of the network after so many steps
TRAIN: Final = 4
COPY: Final = 32
STATES: Final = 8
HIDDEN: Final = 256
STORED: Final = 512
DRAWN: Final = 128
EXPLORED: Final = 0.3
_DISCOUNT, _RATE = 0.95, 0.1


class Network(NamedTuple):
    """Weights of two layers: a hidden state per state, and a value per action."""

    hidden: Any
    values: Any


class Transitions(NamedTuple):
    """Stored steps: the states before and after, the actions, and the rewards."""

    before: Any
    actions: Any
    rewards: Any
    after: Any


def training_loop() -> Graph:
    """All of `n` steps as one loop; `total` is the sum of the rewards, `hidden` the weights."""
    b = Builder()
    n = b.placeholder("n", "int32", [])
    network, stored = _network(b), _transitions(b)

    def body(i: Any, state: Any, total: Any, *arrays: Any) -> Any:
        network, target = Network(*arrays[:2]), Network(*arrays[2:4])
        action = b.cond(
            _is_exploring(b, i), lambda: _random_action(b, i), lambda: greedy(b, network, state)
        )
        after, reward = move(b, state, action)
        stored = store(b, i, Transitions(*arrays[4:]), Transitions(state, action, reward, after))
        network = Network(
            *b.cond(
                b.Equal(i % TRAIN, TRAIN - 1),
                lambda: tuple(trained(b, i, network, target, stored)),
                lambda: tuple(network),
            )
        )
        target = b.cond(b.Equal(i % COPY, COPY - 1), lambda: tuple(network), lambda: tuple(target))
        return i + 1, after, total + reward, *network, *target, *stored

    start = (0, b.const(0), b.const(0.0, "float32"), *network, *network, *stored)
    _, _, total, hidden, *_ = b.while_loop(lambda i, *_: i < n, body, start)
    b.Identity(total, name="total")
    b.Identity(hidden, name="hidden")
    return b.graph


def training_parts() -> Graph:
    """The same step in parts that a program runs one by one, which holds the state."""
    b = Builder()
    i, state = b.placeholder("i", "int32", []), b.placeholder("state", "int32", [])
    action = b.placeholder("action", "int32", [])
    network = Network(*_placeholders(b, "network", _network(b)))
    target = Network(*_placeholders(b, "target", _network(b)))
    stored = Transitions(*_placeholders(b, "stored", _transitions(b)))
    _named(b, "exploring", [_is_exploring(b, i)])
    _named(b, "random", [_random_action(b, i)])
    _named(b, "greedy", [greedy(b, network, state)])
    after, reward = move(b, state, action)
    _named(b, "moved", [after, reward])
    _named(b, "store", store(b, i, stored, Transitions(state, action, reward, after)))
    _named(b, "train", trained(b, i, network, target, stored))
    _named(b, "start", [*_network(b), *_transitions(b)])
    return b.graph


def greedy(b: Builder, network: Network, state: Any) -> Any:
    """The action that the network values most."""
    values = _values(b, network, b.Reshape(state, [1]))
    return b.Reshape(b.ArgMax(values, 1, output_type="int32"), [])


def move(b: Builder, state: Any, action: Any) -> tuple[Any, Any]:
    """The next state and the reward: 1 at the end of the chain, which is followed by its start."""
    after = b.Maximum(state + action * 2 - 1, 0)
    ended = b.Equal(after, STATES - 1)
    return b.cond(ended, lambda: 0, lambda: after), b.Cast(ended, DstT="float32")


def store(b: Builder, i: Any, stored: Transitions, step: Transitions) -> Transitions:
    """The transitions with another one in place of the oldest."""
    at = b.Reshape(i % STORED, [1, 1])
    return Transitions(
        *(
            b.TensorScatterUpdate(old, at, b.Reshape(new, [1]))
            for old, new in zip(stored, step, strict=True)
        )
    )


def trained(b: Builder, i: Any, network: Network, target: Network, stored: Transitions) -> Network:
    """The network after a step of gradient descent on transitions that are drawn."""
    drawn = b.StatelessRandomUniformInt([DRAWN], b.Pack([i, 2]), 0, STORED)
    before, actions, rewards, after = (b.GatherV2(array, drawn, 0) for array in stored)
    best = b.Max(_values(b, target, after), [1])
    hidden = b.Tanh(b.GatherV2(network.hidden, before, 0))
    chosen = b.OneHot(actions, 2, 1.0, 0.0)
    value = b.Sum(b.MatMul(hidden, network.values) * chosen, [1])
    error = (value - (rewards + best * _DISCOUNT)) / float(DRAWN)
    d_values = b.ExpandDims(error, 1) * chosen
    d_hidden = b.MatMul(d_values, network.values, transpose_b=True) * (1.0 - hidden * hidden)
    rows = b.UnsortedSegmentSum(d_hidden, before, STATES)
    return Network(
        network.hidden - rows * _RATE,
        network.values - b.MatMul(hidden, d_values, transpose_a=True) * _RATE,
    )


def _values(b: Builder, network: Network, states: Any) -> Any:
    return b.MatMul(b.Tanh(b.GatherV2(network.hidden, states, 0)), network.values)


def _is_exploring(b: Builder, i: Any) -> Any:
    return b.Less(b.StatelessRandomUniform([], b.Pack([i, 0])), EXPLORED)


def _random_action(b: Builder, i: Any) -> Any:
    return b.StatelessRandomUniformInt([], b.Pack([i, 1]), 0, 2)


def _network(b: Builder) -> Network:
    return Network(
        b.StatelessRandomNormal([STATES, HIDDEN], [1, 2]) * 0.1,
        b.StatelessRandomNormal([HIDDEN, 2], [3, 4]) * 0.1,
    )


def _transitions(b: Builder) -> Transitions:
    zeros = b.Fill([STORED], b.const(0))
    return Transitions(zeros, zeros, b.Fill([STORED], b.const(0.0, "float32")), zeros)


def _placeholders(b: Builder, name: str, like: Any) -> list[Any]:
    return [
        b.placeholder(f"{name}{k}", x.dtype.name, [int(size) for size in x.shape])
        for k, x in enumerate(like)
    ]


def _named(b: Builder, name: str, values: Any) -> None:
    for k, value in enumerate(values):
        b.Identity(value, name=f"{name}{k}")
