"""Search TensorFlow's modes for faults: `python -m benchmarks hunt --with tensorflow:autojit`.

Each seed is a random structured program, built by the generator of `make agree`, some with
TensorFlow's gradients. It runs in cfgraph and in each mode. The log receives one JSON
line per program; a later call with the same log continues there. A fault is a wrong value, a hang,
or a crash; an error that a mode reports is counted as a refusal. With `--reports DIR` each fault is
reduced, and reported unless an earlier one was reduced to a graph of the same shape.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

import cfgraph
from cfgraph.comparison.equivalence import ComparisonRunOptions
from cfgraph.comparison.sample_point import SampleOptions
from cfgraph.errors import CfgraphError, Unsupported
from cfgraph.integrations.tensorflow.mode_comparison import compare_modes
from cfgraph.integrations.tensorflow.mode_report import ModeFault, write_report
from cfgraph.integrations.tensorflow.modes import ENGINE, Mode, parse_modes
from cfgraph.integrations.tensorflow.processes import ModePool
from cfgraph.integrations.tensorflow.reduce_mode import reduce_mode, start_oracle
from cfgraph.ir.graph import Graph

# XLA computes functions of floats in its own way; a fusion rounds half precision once, not each op
_TOLERANCES: Final = {"float16": 2e-2, "bfloat16": 1e-1}
_RTOL, _ATOL_OF_RTOL = 1e-3, 0.1
# a program of these sizes that runs longer hangs
_SECONDS: Final = 20.0
FAULTS: Final = ("value", "hang", "crash")
GraphShape = tuple[tuple[str, tuple[str, ...]], ...]
_MAX_ITERATIONS: Final = 10_000


@dataclass(frozen=True, slots=True)
class HuntedProgram:
    """A random program: its graph, feeds, fetches, and what initializes its variable."""

    seed: int
    graph: Graph
    feeds: dict[str, Any]
    fetches: tuple[str, ...]
    init: str

    def options(self) -> ComparisonRunOptions:
        """Return the options of its comparison."""
        types = (np.asarray(value).dtype.name for value in self.feeds.values())
        rtol = max(_TOLERANCES.get(name, _RTOL) for name in types)
        setting = SampleOptions(self.feeds, [self.init], max_iterations=_MAX_ITERATIONS)
        return ComparisonRunOptions(
            setting, self.fetches, cases=1, rtol=rtol, atol=rtol * _ATOL_OF_RTOL, locate=False
        )


def hunted_program(seed: int) -> HuntedProgram:
    """Build the program of a seed; those of every third one have gradients, too."""
    from tests.conformance.agree.programs import built

    program = built(seed, int(seed % 3 == 0), v2=seed % 2 == 1)
    graph = program.graph.as_graph_def(add_shapes=True).SerializeToString()
    fetches = itertools.chain(program.fetches, *program.gradients)
    names = tuple(dict.fromkeys(fetches))
    return HuntedProgram(seed, cfgraph.loads(graph), program.feeds[0], names, program.init)


def graph_shape(graph: Graph) -> GraphShape:
    """Return the ops of a graph with those of their inputs, regardless of names and order."""
    nodes = [(node.op, tuple(item.node.op for item in node.inputs)) for node in graph]
    for function in graph.functions.values():
        body = function.definition.nodes
        ops = {node.name: node.op for node in body}
        nodes += [
            (node.op, tuple(ops.get(text.split(":")[0], "") for text in node.inputs))
            for node in body
        ]
    return tuple(sorted(nodes))


@dataclass(slots=True)
class Hunt:
    """Programs tried so far, and what happened in each mode."""

    pool: ModePool
    modes: tuple[Mode, ...]
    reports: Path | None = None
    counts: Counter[str] = field(default_factory=Counter)
    shapes: set[GraphShape] = field(default_factory=set)

    def try_seed(self, seed: int) -> dict[str, Any]:
        """Run the program of a seed in all modes; returns the line of the log."""
        record: dict[str, Any] = {"seed": seed}
        program = hunted_program(seed)
        self.counts["programs"] += 1
        for mode in self.modes:
            outcome = self.outcome(program, mode)
            self.counts[f"{mode.name}: {outcome['kind']}"] += 1
            if outcome["kind"] != "agrees":
                record[mode.name] = outcome
            if self.reports is not None and outcome["kind"] in FAULTS:
                outcome["reduced"] = self.reduce(program, mode)
        return record

    def reduce(self, program: HuntedProgram, mode: Mode) -> str:
        """Reduce a fault, and report it; returns its folder, or why there is none."""
        assert self.reports is not None
        try:
            oracle, delta = start_oracle(self.pool, program.graph, mode, None, program.options())
            (graph,) = reduce_mode(oracle, program.graph, delta).best.graphs
            shape = graph_shape(graph)
            if shape in self.shapes:
                return "the shape of an earlier one"
            self.shapes.add(shape)
            delta = oracle.compare(graph, locate=True)
            folder = self.reports / f"{mode.name}_{program.seed}"
            write_report(ModeFault(oracle, graph, delta, self.pool.version), str(folder))
        except CfgraphError as error:
            return f"not reduced: {error.message[:200]}"
        return str(folder)

    def outcome(self, program: HuntedProgram, mode: Mode) -> dict[str, str]:
        """Compare a program in one mode."""
        try:
            delta = compare_modes(self.pool, program.graph, mode, options=program.options())
        except Unsupported as error:
            return {"kind": "unsupported", "message": error.message[:200]}
        except CfgraphError as error:
            return {"kind": "cfgraph fails", "message": error.message[:200]}
        if delta.failure is not None:
            kind = "refused"
            for word, verb in (("hang", "hangs"), ("crash", "is ended"), ("crash", "ends with")):
                kind = word if f") {verb}" in delta.failure.message else kind
            return {"kind": kind, "message": delta.failure.message[:300]}
        if delta.gaps:
            gap = delta.gaps[0]
            return {"kind": "value", "message": f"{gap.what}: {gap.message}"}
        return {"kind": "agrees"}


def main(words: Sequence[str]) -> int:
    """Try programs for some time; returns 1 if one of them found a fault."""
    options = parse(words)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    texts = options.modes or [ENGINE]
    modes = tuple(dict.fromkeys(mode for text in texts for mode in parse_modes(text, "--with")))
    seed = max(options.seed, logged_end(options.log))
    deadline = time.monotonic() + options.seconds
    with ModePool(seconds=_SECONDS) as pool:
        hunt = Hunt(pool, modes, options.reports)
        while time.monotonic() < deadline:
            record = hunt.try_seed(seed)
            if options.log:
                with options.log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
            seed += 1
    print(json.dumps(dict(sorted(hunt.counts.items()))))
    return int(any(key.endswith(FAULTS) for key in hunt.counts))


def logged_end(path: Path | None) -> int:
    """Return the seed after the last one in a log."""
    if path is None or not path.exists():
        return 0
    lines = path.read_text(encoding="utf-8").splitlines()
    return 1 + max((json.loads(line)["seed"] for line in lines), default=-1)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of a command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks hunt", description=__doc__)
    parser.add_argument(
        "--with",
        dest="modes",
        action="append",
        metavar="tensorflow[:MODE]",
        help="modes that run each program, repeatable; default: all",
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="default: 60")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append to FILE, and continue it")
    parser.add_argument("--reports", type=Path, metavar="DIR", help="reduce and report faults")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
