"""Fuzzer of the command line: `python -m tests.robustness.fuzz --seed S --count N --log FILE`.

Input `i` of seed `s` is the same in every process of one checkout, so that a log of seeds is
enough to repeat a run. A child process runs the inputs and is replaced when it dies; LOG receives
one JSON line per finding and one per 2,000 inputs, and a later call with the same seed and log
continues there. The files of each new kind of finding are stored in the folder LOG.d.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import mmap
import os
import pkgutil
import resource
import struct
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import cfgraph
from tests.robustness.cases import Case, fuzz_case
from tests.robustness.seed_graphs import seed_graphs
from tests.robustness.trial import MIB, Finding, run_case, warm_commands

_CHUNK = 2000
# without a new input for this long, code that no signal reaches is in an endless loop
_STALL_SECONDS = 180
# in memory, where there is such a folder
_FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else None
_ADDRESS_SPACE = 3072 * MIB


def main() -> int:
    """Fuzz the inputs that a log does not have yet; return 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="number of the first input")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--log", type=Path, help="append to this file, and continue from it")
    parser.add_argument("--until", type=float, help="stop after this many seconds")
    options = parser.parse_args()
    start, stop = options.start, options.start + options.count
    if options.log:
        start = max(start, _logged_end(options.log, options.seed))
    log = Log(options.log)
    import_everything()
    deadline = time.monotonic() + (options.until or 1e12)
    while start < stop and time.monotonic() < deadline:
        end = min(stop, start + _CHUNK)
        fuzz(options.seed, start, end, log)
        start = end
    for key, count in log.findings.most_common():
        print(f"{count:6} {key}")
    return 1 if log.findings else 0


def import_everything() -> None:
    """Import all of cfgraph and read the seed graphs, once for all children."""
    for module in pkgutil.walk_packages(cfgraph.__path__, "cfgraph."):
        # the extension imports Model Explorer
        if module.name not in ("cfgraph.__main__", "cfgraph.model_explorer.main"):
            importlib.import_module(module.name)
    warm_commands()
    seed_graphs()


def _logged_end(path: Path, seed: int) -> int:
    """The number after the last input of a seed in a log."""
    if not path.exists():
        return 0
    records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return max((r["stop"] for r in records if r["seed"] == seed and "stop" in r), default=0)


class Log:
    """Findings and progress of runs."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.findings = collections.Counter[str]()

    def write(self, **record: Any) -> None:
        """Append one line, at once."""
        if self.path:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    def add(self, seed: int, number: int, finding: Finding, case: Case) -> None:
        """Record a finding; the files of the first of its kind are stored."""
        line = " ".join(finding.line)
        self.write(seed=seed, number=number, finding=finding.key, line=line)
        if finding.key not in self.findings:
            print(f"{seed}:{number} {finding.key}: {line}", file=sys.stderr, flush=True)
            if self.path:
                folder = self.path.with_name(f"{self.path.name}.d") / case.name
                for name, data in case.files.items():
                    file = folder / name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(data)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "finding.txt").write_text(
                    f"{finding.key}\n{line}\n{finding.details}\n", encoding="utf-8"
                )
        self.findings[finding.key] += 1


def fuzz(seed: int, start: int, stop: int, log: Log) -> None:
    """Run the inputs of a range in child processes."""
    began, cpu = time.monotonic(), _children_seconds()
    first, statuses, lines = start, collections.Counter[str](), 0
    while start < stop:
        with tempfile.TemporaryFile("w+") as reports, mmap.mmap(-1, 8) as progress:
            progress[:] = struct.pack("q", start)
            parent, pid = os.getpid(), os.fork()
            if pid == 0:
                _child(range(start, stop), seed, parent, progress, reports)
            ended = _wait(pid, progress)
            reached = struct.unpack("q", progress[:])[0]
            reports.seek(0)
            for text in reports:
                record = json.loads(text)
                if "error" in record:
                    sys.exit(f"the fuzzer itself failed:\n{record['error']}")
                statuses.update(record["statuses"])
                lines += len(record["statuses"])
                for item in record["findings"]:
                    finding = Finding(**item | {"line": tuple(item["line"])})
                    log.add(seed, record["number"], finding, fuzz_case(seed, record["number"]))
            if ended:
                case = fuzz_case(seed, reached)
                line = tuple(" ; ".join(" ".join(line) for line in case.lines).split())
                log.add(seed, reached, Finding("dead", ended, line), case)
        start = reached + 1 if ended else stop
    seconds = time.monotonic() - began
    log.write(
        seed=seed,
        start=first,
        stop=stop,
        lines=lines,
        seconds=round(seconds, 1),
        cpu_seconds=round(_children_seconds() - cpu, 1),
        statuses=dict(sorted(statuses.items())),
    )


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _wait(pid: int, progress: mmap.mmap) -> str:
    """Wait for a child; return the cause of its death, or nothing if it finished."""
    seen, since, pause = b"", time.monotonic(), 0.01
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return "" if code == 0 else f"signal {-code}" if code < 0 else f"status {code}"
        if progress[:] != seen:
            seen, since = progress[:], time.monotonic()
        elif time.monotonic() - since > _STALL_SECONDS:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            return f"stalled for {_STALL_SECONDS} s"
        time.sleep(pause)
        pause = min(0.5, pause * 1.5)


def _child(numbers: range, seed: int, parent: int, progress: mmap.mmap, reports: Any) -> None:
    """Run inputs, and never return."""
    code = 1
    try:
        size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = size * os.sysconf("SC_PAGE_SIZE") + _ADDRESS_SPACE
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        devnull = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(devnull, descriptor)
        with tempfile.TemporaryDirectory(prefix="cfgraph-fuzz-", dir=_FOLDER) as folder:
            for number in numbers:
                if os.getppid() != parent:
                    break  # the rest is not needed
                progress[:] = struct.pack("q", number)
                report = _report(fuzz_case(seed, number), Path(folder))
                reports.write(json.dumps({"number": number, **report}) + "\n")
                reports.flush()
        code = 0
    except BaseException:
        reports.write(json.dumps({"error": traceback.format_exc()}) + "\n")
        reports.flush()
    os._exit(code)


def _report(case: Case, folder: Path) -> dict[str, Any]:
    statuses, findings = [], []
    for status, finding in run_case(case, folder):
        statuses.append(str(status))
        if finding is not None:
            findings.append(vars(finding))
    return {"statuses": statuses, "findings": findings}


if __name__ == "__main__":
    sys.exit(main())
