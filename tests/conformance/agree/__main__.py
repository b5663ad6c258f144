"""Search for differences from TensorFlow: `python -m tests.conformance.agree --seed S --count N`.

Each seed is a random structured program, which TensorFlow runs once and cfgraph in several ways.
The log receives one JSON line per difference and one per 20 seeds; a later call with the same log
continues there. Differences are reduced, and become cases of the archive LOG.zip; `--keep ID` adds
one of them to the cases that the tests replay.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from cfgraph.errors import CfgraphError
from cfgraph.limits import limited

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_CHUNK = 20
_REDUCTION_SECONDS = 120


def main() -> int:
    """Run the seeds that a log does not have yet; return 1 if there are differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--log", type=Path, help="append to this file, and continue from it")
    parser.add_argument("--way", help="run each seed in this way, such as 'lower gradient tokens'")
    parser.add_argument("--keep", metavar="ID", help="add a case of LOG.zip to the tests")
    options = parser.parse_args()
    if options.keep:
        from tests.conformance.agree.found_cases import keep

        keep(options.keep, _archive(options.log))
        return 0
    start, stop = options.seed, options.seed + options.count
    if options.log:
        start = max(start, _logged_end(options.log, range(start, stop)))
    found = 0
    while start < stop:
        end = min(stop, (start // _CHUNK + 1) * _CHUNK)
        found += search(range(start, end), options.log, options.way)
        start = end
    return 1 if found else 0


def _logged_end(path: Path, seeds: range) -> int:
    if not path.exists():
        return 0
    records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return max((r["stop"] for r in records if r.get("stop", -1) - 1 in seeds), default=0)


def _archive(log: Path) -> Path:
    return log.with_name(f"{log.name}.zip")


def search(seeds: range, path: Path | None, way: str | None = None) -> int:
    """Run seeds; returns the number of differences."""
    from tests.conformance.agree.programs import tf
    from tests.conformance.agree.trial import NotRun, differences, trial_of, ways_of
    from tests.conformance.agree.ways import Way

    tf.logging.set_verbosity(tf.logging.ERROR)
    counts, found = collections.Counter[str](), 0
    began, cpu = time.monotonic(), time.process_time()
    for seed in seeds:
        try:
            trial = trial_of(seed)
        except NotRun as error:
            counts["not run"] += 1
            _write(path, {"seed": seed, "kind": "not run", "message": str(error)[:200]})
            continue
        chosen = [Way.parse(way)] if way else ways_of(seed)
        counts["ways"] += len(chosen)
        counts["errors"] += any(run.error for run in trial.subject.runs)
        counts["without gradients"] += bool(trial.refusal)
        for difference in differences(trial, chosen):
            counts[difference.kind] += 1
            is_found = difference.kind != "unsupported"
            found += is_found
            record = {
                "seed": seed,
                "way": str(difference.way),
                "kind": difference.kind,
                "message": difference.message,
            }
            _write(path, record)
            if is_found:
                print(json.dumps(record), flush=True)
            if is_found and path:
                _record(trial, difference, _archive(path))
    record = {
        "start": seeds.start,
        "stop": seeds.stop,
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        **counts,
    }
    _write(path, record)
    print(json.dumps(record), flush=True)
    return found


def _record(trial: Any, difference: Any, path: Path) -> None:
    """Reduce a difference, and add it to an archive."""
    from tests.conformance.agree.found_cases import CaseWriter
    from tests.conformance.agree.reduction import smallest

    try:
        with limited(timeout=_REDUCTION_SECONDS):
            subject = smallest(trial.subject, difference.way)
    except CfgraphError:
        subject = trial.subject
    writer = CaseWriter(path)
    writer.add(f"agree/{difference.seed} {difference.way}", subject, difference.way)
    writer.write()


def _write(path: Path | None, record: dict[str, Any]) -> None:
    if path:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    sys.exit(main())
