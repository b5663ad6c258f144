"""The session that the options of a command describe."""

from __future__ import annotations

import hashlib
from typing import Final

from cfgraph.cli.run_options import ClockOptions, SessionOptions
from cfgraph.console.graph_files import Source
from cfgraph.console.run_memory import memory_limits, swap_threshold
from cfgraph.errors import UsageError
from cfgraph.passes.place.rules import combined_rules
from cfgraph.runtime.code_cache import CodeCache
from cfgraph.runtime.cost_model import CostModel, read_costs
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.io_policy import IoPolicy
from cfgraph.runtime.session import Session

# digits of a number of threads
_MAX_DIGITS: Final = 5


def make_session(
    source: Source, options: SessionOptions, state: State | None, io: IoPolicy
) -> Session:
    """Create the session that the options describe."""
    _require_support_of_workers(options)
    limits, memory = options.limits, memory_limits(options.devices.memory)
    threads = options.engine.blas_threads
    return Session(
        source.graph,
        state=state,
        devices=options.devices.devices or None,
        soft_placement=options.devices.soft,
        rules=combined_rules(options.devices.rules, options.devices.place),
        schedule=limits.schedule,
        schedule_seed=limits.schedule_seed,
        seed=limits.seed,
        costs=_cost_model(options.clock),
        engine=options.engine.engine,
        lazy=options.engine.lazy,
        memory=memory,
        swap_above=swap_threshold(options.devices.swap_above, memory),
        gpu=options.devices.gpu,
        allow_io=io,
        cache=not options.engine.no_cache and CodeCache(hashlib.sha256(source.data).hexdigest()),
        blas_threads=int(threads) if _is_positive(threads) else threads,
        workers=options.remote.workers_of_session(),
    )


def _require_support_of_workers(options: SessionOptions) -> None:
    """Raise UsageError for an option that a run on workers does not support."""
    remote = options.remote
    workers = next(
        (name for name, value in (("--workers", remote.workers), ("--ray", remote.ray)) if value),
        None,
    )
    for name, is_set in (
        ("--clock virtual", options.clock.virtual),
        ("--memory", options.devices.memory),
        ("--schedule random", options.limits.schedule == "random"),
        ("--engine xla", options.engine.engine == "xla"),
    ):
        if workers is not None and is_set:
            message = f"{name} cannot be combined with {workers}"
            raise UsageError(message, hint=f"remove {name} or {workers}")


def _is_positive(text: str) -> bool:
    digits = text.lstrip("0")
    return digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS


def _cost_model(timing: ClockOptions) -> CostModel | None:
    """Return the cost model of the virtual clock, or None for the real clock."""
    if not timing.virtual:
        return None
    return read_costs(timing.costs) if timing.costs else CostModel()
