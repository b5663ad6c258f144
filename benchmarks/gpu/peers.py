"""The LSTM as one writes it by hand: jax with a scan under jit, and PyTorch step by step.

The gates are in the order of fixtures/graphs/lstm.pb. A peer is a function to run and to wait for,
or the words that say why it is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cfgraph.backends.xla.jax_library import has_jax
from cfgraph.backends.xla.jax_library import load_jax as jax_module

Peer = Callable[[], object] | str


def jax_lstm(x: Any, weights: Any, *, gradient: bool, gpu_plan: bool) -> Peer:
    """`lax.scan` of the step, under jit; with the gradient of the weights."""
    if not has_jax():
        return "jax is not installed"
    jax = jax_module()
    platform = jax.devices()[0].platform
    if gpu_plan and platform == "cpu":
        return "jax has no CUDA here"
    jnp, lax = jax.numpy, jax.lax

    def loss(w: Any, inputs: Any) -> Any:
        units = inputs.shape[-1]

        def step(state: Any, row: Any) -> Any:
            h, c = state
            gates = jnp.concatenate([row, h], 1) @ w
            forget, enter, new, leave = jnp.split(gates, 4, 1)
            c = jax.nn.sigmoid(forget) * c + jax.nn.sigmoid(enter) * jnp.tanh(new)
            return (jax.nn.sigmoid(leave) * jnp.tanh(c), c), None

        start = jnp.zeros((inputs.shape[1], units), inputs.dtype)
        (h, _), _ = lax.scan(step, (start, start), inputs)
        return h.sum()

    run = jax.jit(jax.value_and_grad(loss) if gradient else loss)
    given = jax.device_put(weights), jax.device_put(x)
    return lambda: jax.block_until_ready(run(*given))


def torch_lstm(x: Any, weights: Any, *, gradient: bool, gpu_plan: bool) -> Peer:
    """PyTorch, eager: one call an operation."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    if gpu_plan and not torch.cuda.is_available():
        return "PyTorch has no CUDA here"
    device = "cuda" if gpu_plan else "cpu"
    inputs = torch.tensor(x, device=device)
    w = torch.tensor(weights, device=device, requires_grad=gradient)

    def run() -> object:
        h = c = torch.zeros(x.shape[1:], device=device)
        for row in inputs:
            gates = torch.cat([row, h], 1) @ w
            forget, enter, new, leave = gates.chunk(4, 1)
            c = torch.sigmoid(forget) * c + torch.sigmoid(enter) * torch.tanh(new)
            h = torch.sigmoid(leave) * torch.tanh(c)
        total = h.sum()
        if gradient:
            w.grad = None
            total.backward()
        if gpu_plan:
            torch.cuda.synchronize()
        return total

    if gradient:
        return run

    def without() -> object:
        with torch.no_grad():
            return run()

    return without
