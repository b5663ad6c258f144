"""Measure a real card: `python -m benchmarks.gpu [--tiny] [--seconds N] [--models PATH] [--no-page]
[section ...]`.

Writes benchmarks/results/gpu-<date>.json, a trace of the pipeline beside it, and the tables of
docs/performance.md. `--tiny` tries the code on small sizes, on simulated devices where there is no
card, and writes nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.arguments import section_parser
from benchmarks.gpu import lstm, models, overhead, pipeline, report, swapping
from benchmarks.gpu.figures import Bench
from cfgraph.backends.gpu.context import GpuContext, gpu_context
from cfgraph.backends.xla.jax_library import has_jax, load_jax
from cfgraph.errors import Unsupported

SECTIONS = {
    "models": models,
    "lstm": lstm,
    "overhead": overhead,
    "pipeline": pipeline,
    "swapping": swapping,
}
# seconds for all sections on a GPU, and the share of the remaining ones that a section may take
SECONDS = 450.0
SHARES = {"models": 0.5, "lstm": 0.55, "overhead": 0.2, "pipeline": 0.5, "swapping": 1.0}
RESULTS = Path(__file__).parents[1] / "results"


def main(words: Sequence[str]) -> int:
    """Measure the sections that are named, or all; the exit code."""
    options = parse(words)
    tiny = options.tiny
    gpu: GpuContext | str = "simulated"
    try:
        gpu = gpu_context()
    except Unsupported as error:
        if not tiny:
            print(f"{error.message}; --tiny tries the code without", file=sys.stderr)
            return error.exit_code
    names = options.sections or list(SECTIONS)
    seconds, recordings = options.seconds, options.models
    bench = measured(gpu, names, tiny=tiny, seconds=seconds, recordings=recordings)
    recorded, text = report.record(bench), report.tables(bench.figures)
    print(f"{recorded['device']}\n\n{text}")
    if tiny or bench.simulated:
        print("tried only: nothing is written")
        return 0
    print(f"written: {report.save(recorded, RESULTS, bench.trace)}")
    if not options.no_page:
        whole = report.filled(report.PAGE.read_text(encoding="utf-8"), recorded, text)
        report.PAGE.write_text(whole, encoding="utf-8")
    return 0


def measured(
    gpu: GpuContext | str,
    names: list[str],
    *,
    tiny: bool,
    seconds: float = SECONDS,
    recordings: Path | None = None,
) -> Bench:
    """The figures of some sections."""
    began = time.monotonic()
    bench = Bench(gpu, tiny, began, recordings)
    for name in names:
        left = began + seconds - time.monotonic()
        bench.ends = time.monotonic() + left * (SHARES[name] if name != names[-1] else 1.0)
        print(f"{name}: {max(left, 0):.0f} s left", file=sys.stderr)
        SECTIONS[name].measure(bench)
    return bench


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of a command line; exits with 2 for an unknown section or option."""
    description = "Measure some sections, or all, on a real card."
    parser = section_parser("python -m benchmarks.gpu", description, SECTIONS)
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="N", help="time for all sections"
    )
    parser.add_argument(
        "--models", type=Path, metavar="PATH", help="recorded models; default: fixtures/"
    )
    parser.add_argument("--no-page", action="store_true", help="leave docs/performance.md alone")
    return parser.parse_args(words)


if __name__ == "__main__":
    # the peers share the card's memory
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if has_jax():
        load_jax().config.update("jax_default_matmul_precision", "highest")
    sys.exit(main(sys.argv[1:]))
