"""Measure a real card: `python -m benchmarks.gpu [--tiny] [--seconds N] [--no-page] [section ...]`.

Writes benchmarks/results/gpu-<date>.json, a trace of the pipeline beside it, and the tables of
docs/performance.md. `--tiny` tries the code on small sizes, on simulated devices where there is no
card, and writes nothing.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from benchmarks.gpu import lstm, overhead, pipeline, report, swapping
from benchmarks.gpu.figures import Bench
from cfgraph.errors import Unsupported
from cfgraph.runtime.gpu.context import GpuContext, gpu_context
from cfgraph.runtime.jax.compile import has_jax, load_jax

SECTIONS = {"lstm": lstm, "overhead": overhead, "pipeline": pipeline, "swapping": swapping}
# seconds for all sections on a GPU, and the share of the remaining ones that a section may take
SECONDS = 400.0
SHARES = {"lstm": 0.55, "overhead": 0.2, "pipeline": 0.5, "swapping": 1.0}
RESULTS = Path(__file__).parents[1] / "results"


def main(words: list[str]) -> int:
    """Measure the sections that are named, or all; the exit code."""
    tiny = "--tiny" in words
    gpu: GpuContext | str = "simulated"
    try:
        gpu = gpu_context()
    except Unsupported as error:
        if not tiny:
            print(f"{error.message}; --tiny tries the code without", file=sys.stderr)
            return error.exit_code
    bench = measured(gpu, _named(words), tiny=tiny, seconds=_seconds(words))
    recorded, text = report.record(bench), report.tables(bench.figures)
    print(f"{recorded['device']}\n\n{text}")
    if tiny or bench.simulated:
        print("tried only: nothing is written")
        return 0
    print(f"written: {report.save(recorded, RESULTS, bench.trace)}")
    if "--no-page" not in words:
        whole = report.filled(report.PAGE.read_text(encoding="utf-8"), recorded, text)
        report.PAGE.write_text(whole, encoding="utf-8")
    return 0


def measured(
    gpu: GpuContext | str, names: list[str], *, tiny: bool, seconds: float = SECONDS
) -> Bench:
    """The figures of some sections."""
    began = time.monotonic()
    bench = Bench(gpu, tiny, began)
    for name in names:
        left = began + seconds - time.monotonic()
        bench.ends = time.monotonic() + left * (SHARES[name] if name != names[-1] else 1.0)
        print(f"{name}: {max(left, 0):.0f} s left", file=sys.stderr)
        SECTIONS[name].measure(bench)
    return bench


def _named(words: list[str]) -> list[str]:
    return [word for word in words if word in SECTIONS] or list(SECTIONS)


def _seconds(words: list[str]) -> float:
    return float(words[words.index("--seconds") + 1]) if "--seconds" in words else SECONDS


if __name__ == "__main__":
    # the peers share the card's memory
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if has_jax():
        load_jax().config.update("jax_default_matmul_precision", "highest")
    sys.exit(main(sys.argv[1:]))
