"""TensorFlow's partition dumps of recorded programs, and what differs when they run.

    python -m tests.conformance.partition_dumps [--models PATH] [--match TEXT] [-o DIR]

Each run of a recorded program is made by TensorFlow with its default graph rewrites, as it is and
with nodes placed at random on three CPUs. The graphs that its executors ran are run again from
their bytes, and the values compared. The programs are the recorded sessions of fixtures/, or the
models in PATH: a folder or a .zip of `cases.jsonl`, `graphs/`, `arrays/`, and `saved/`. With -o,
each dump is a partition folder that `cfgraph run` accepts. Exits with status 1 if a value differs.

Two kinds of programs are left out, and named: those with an uninitialized variable, and incomplete
dumps, which call a function that TensorFlow's rewrites made and that its dump does not contain.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import cfgraph
from benchmarks.models import Recordings
from cfgraph.ir import registry
from cfgraph.ir.file_io import MANIFEST
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import calls_of
from cfgraph.ir.partition_folder import merge_partitions
from cfgraph.ir.serde import graph_def
from cfgraph.runtime.engine.step import State
from tests.conformance import recorded

DEVICES: Final = "cpu:0-2"
UNINITIALIZED: Final = re.compile(
    r"uninitialized|not initialized|Could not find variable|does not exist|was not found|"
    r"Container localhost does not exist"
)
# what no second run repeats: names of kernels in messages, and the values of random ops
_RANDOM_TAG: Final = "random"


class NotDumpedError(Exception):
    """The reason for which TensorFlow runs no graph of a program."""


@dataclass(frozen=True)
class Dump:
    """The graphs of one run, by device, with the tensors that were fed and fetched."""

    parts: list[bytes]
    feeds: dict[str, Any]
    fetches: list[str]
    targets: list[str]
    values: list[Any]

    def merged(self) -> Graph:
        """The graphs as one."""
        return merge_partitions(graph_def.graph_from_bytes(part) for part in self.parts)

    def missing_functions(self) -> list[str]:
        """The functions that nodes call and that no graph contains."""
        graph = self.merged()
        bodies = (function.definition.nodes for function in graph.functions.values())
        nodes = [*graph, *(node for body in bodies for node in body)]
        called = {name for node in nodes for name, _ in calls_of(node) if name != node.op}
        known = {*graph.functions, *registry.op_names()}
        return sorted(called - known)

    def write(self, folder: Path) -> None:
        """Write a partition folder."""
        folder.mkdir(parents=True, exist_ok=True)
        listed = []
        for index, part in enumerate(self.parts):
            graph = graph_def.graph_from_bytes(part)
            nodes = tuple(graph)
            (folder / f"{index}.pb").write_bytes(part)
            listed.append({"device": nodes[0].device, "file": f"{index}.pb", "nodes": len(nodes)})
        document = {"format": "cfgraph partitions", "version": 1, "parts": listed}
        (folder / MANIFEST).write_text(json.dumps(document, indent=1), encoding="utf-8")


@dataclass(frozen=True)
class Program:
    """A recorded program: its graph or SavedModel, its runs, and how exactly it repeats."""

    name: str
    graph: bytes
    runs: list[dict[str, Any]]
    array: Callable[[str], Any]
    handles: tuple[str, ...] = ()
    saved: str = ""
    rtol: float | None = None
    is_random: bool = False


def recorded_programs() -> Iterator[Program]:
    """The recorded sessions of fixtures/ whose last graph contains the others."""
    for case in recorded.cases():
        if case["kind"] != "session" or "host" in case["tags"]:
            continue
        runs = [run for run in case["runs"] if not run.get("error")]
        if not runs:
            continue
        last = recorded.archive().read(f"graphs/{runs[-1]['graph']}.pb")
        runs = [
            {
                "feeds": run["feeds"],
                "fetches": [name for name in run["fetches"] if ":" in name],
                "targets": [name for name in run["fetches"] if ":" not in name],
            }
            for run in runs
        ]
        is_random = _RANDOM_TAG in case["tags"]
        yield Program(case["id"], last, runs, recorded.array, is_random=is_random)


def model_programs(path: Path) -> Iterator[Program]:
    """Recorded models in a folder or an archive."""
    recordings = Recordings(path)
    for case in recordings.cases():
        saved = recordings.saved(case["saved"]) if case.get("saved") else ""
        graph = b"" if saved else recordings.read(f"graphs/{case['graph']}")
        handles = tuple(case.get("handles") or ())
        yield Program(
            case["id"], graph, case["runs"], recordings.array, handles, saved, case.get("rtol")
        )


def dumps(tf: Any, program: Program, seed: int | None = None) -> Iterator[Dump]:
    """Run a program and yield what TensorFlow ran; a seed places its nodes on three CPUs.

    Raises NotDumpedError if TensorFlow cannot run the program.
    """
    config = tf.ConfigProto(device_count={"CPU": 3}, inter_op_parallelism_threads=2)
    config.allow_soft_placement = True
    with tf.Graph().as_default() as graph, tf.Session(graph=graph, config=config) as session:
        runs = program.runs
        if program.saved:
            tf.saved_model.loader.load(session, ["serve"], program.saved)
        else:
            initializer = _import(tf, program, seed)
            runs = [*initializer, *runs]
        for run in runs:
            try:
                yield _dump(tf, session, program, run)
            except (tf.errors.OpError, KeyError, ValueError, TypeError) as error:
                raise NotDumpedError(_first_line(error)) from None


def _import(tf: Any, program: Program, seed: int | None) -> list[dict[str, Any]]:
    """Import the graph of a program; return the run that gives its variables their values."""
    content = program.graph
    if seed is not None:
        placed = cfgraph.loads(content)
        cfgraph.place(placed, devices=DEVICES, seed=seed, soft_placement=True)
        content = cfgraph.dumps(placed)
    message = tf.GraphDef()
    message.ParseFromString(content)
    feeds = program.runs[0]["feeds"]
    variables = {
        name: tf.Variable(program.array(feeds[name]), use_resource=True) for name in program.handles
    }
    inputs = {name: variable.handle for name, variable in variables.items()}
    try:
        tf.import_graph_def(message, input_map=inputs, name="")
    except (ValueError, tf.errors.OpError) as error:
        raise NotDumpedError(_first_line(error)) from None
    if not variables:
        return []
    initializer = tf.variables_initializer(list(variables.values())).name
    return [{"feeds": {}, "fetches": [], "targets": [initializer]}]


def _dump(tf: Any, session: Any, program: Program, run: dict[str, Any]) -> Dump:
    feeds = {
        name: _viewed(program.array(key), session.graph.get_tensor_by_name(name))
        for name, key in run["feeds"].items()
        if name not in program.handles
    }
    options = tf.RunOptions(output_partition_graphs=True, timeout_in_ms=120_000)
    metadata = tf.RunMetadata()
    names = [*run["fetches"], *run["targets"]]
    values = session.run(names, feeds, options=options, run_metadata=metadata)
    parts = [_with_functions(part, session) for part in metadata.partition_graphs if part.node]
    return Dump(parts, feeds, run["fetches"], run["targets"], values[: len(run["fetches"])])


def _with_functions(part: Any, session: Any) -> bytes:
    """A part with the functions of the program; TensorFlow drops those that loops call."""
    if session.graph._functions:
        library = session.graph.as_graph_def().library
        known = {function.signature.name for function in part.library.function}
        part.library.function.extend(
            function for function in library.function if function.signature.name not in known
        )
        part.library.gradient.extend(library.gradient if not part.library.gradient else [])
    return bytes(part.SerializeToString())


def _viewed(value: Any, tensor: Any) -> Any:
    """The value with a dtype that .npy files do not have."""
    value = np.asarray(value)
    return value.view(tensor.dtype.as_numpy_dtype) if value.dtype.kind == "V" else value


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:160]}"


def disagreement(dump: Dump, program: Program, state: State, engine: str = "auto") -> str:
    """Run a dump; return what differs from TensorFlow, or ``."""
    graph = dump.merged()
    arguments = {name.removesuffix(":0") for name in dump.feeds}
    feeds = {
        name: value
        for name, value in dump.feeds.items()
        if any(node.startswith(f"_arg_{name.replace(':', '_')}_") for node in graph.nodes)
    }
    fetched = [name for name in dump.fetches if name not in dump.feeds]
    targets = [name for name in dump.targets if name not in arguments]
    try:
        with cfgraph.Session(graph, state=state, engine=engine) as session:
            values = session.run(fetched, feeds, targets, timeout=120)
    except cfgraph.CfgraphError as error:
        return f"{type(error).__name__}: {error}"
    have = dict(zip(fetched, values, strict=True))
    for name, want in zip(dump.fetches, dump.values, strict=True):
        if name in have and not _is_handle(want):
            failure = _difference(have[name], np.asarray(want), program)
            if failure:
                return f"{name}: {failure}"
    return ""


def _is_handle(value: Any) -> bool:
    return getattr(np.asarray(value).dtype, "names", None) is not None


def _difference(have: Any, want: Any, program: Program) -> str:
    if want.dtype == object:
        want = np.vectorize(lambda text: text if isinstance(text, bytes) else text.encode(), "O")(
            want
        )
    loosen = max(5.0, (program.rtol or 0) / 2e-5)
    return recorded.compare(have, want, shapes_only=program.is_random, loosen=loosen)


@dataclass
class Outcome:
    """Dumps of a program: how many TensorFlow wrote, how many agree, and what ended them."""

    dumps: int = 0
    agreed: int = 0
    failure: str = ""

    @property
    def kind(self) -> str:
        """`agrees`, or the beginning of the failure."""
        return self.failure.partition(":")[0] or "agrees"


def outcome(tf: Any, program: Program, seed: int | None, folder: Path | None = None) -> Outcome:
    """Dump a program and run the dumps up to the first that differs."""
    state = cfgraph.restore(program.saved) if program.saved else State()
    placed = "placed" if seed is not None else "whole"
    result = Outcome()
    try:
        for index, dump in enumerate(dumps(tf, program, seed)):
            if not dump.parts:
                continue
            result.dumps += 1
            if folder is not None:
                dump.write(folder / re.sub(r"[^\w.-]+", "_", program.name) / f"{placed}-{index}")
            missing = dump.missing_functions()
            if missing:
                result.failure = f"incomplete dump: TensorFlow left out the function {missing[0]}"
                return result
            difference = disagreement(dump, program, state)
            if difference:
                result.failure = f"differs: run {index}: {difference}"
                return result
            result.agreed += 1
    except NotDumpedError as reason:
        kind = "uninitialized variable" if UNINITIALIZED.search(str(reason)) else "not dumped"
        result.failure = f"{kind}: {reason}"
    except cfgraph.CfgraphError as error:
        result.failure = f"not placed: {error}"
    return result


def main() -> int:
    """Dump all programs, run the dumps, and print what does not agree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", type=Path, metavar="PATH")
    parser.add_argument("--match", default="", metavar="TEXT")
    parser.add_argument("-o", dest="folder", type=Path, metavar="DIR")
    options = parser.parse_args()
    import tensorflow

    tf = tensorflow.compat.v1
    tf.disable_eager_execution()
    programs = model_programs(options.models) if options.models else recorded_programs()
    results = []
    for program in programs:
        if options.match not in program.name:
            continue
        for seed in (None,) if program.saved else (None, 1):
            result = outcome(tf, program, seed, options.folder)
            results.append(result)
            if result.failure:
                how = "as it is" if seed is None else DEVICES
                print(f"{program.name} ({how}): {result.failure}", flush=True)
    kinds = Counter(result.kind for result in results)
    print("programs: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    dumped, agreed = sum(each.dumps for each in results), sum(each.agreed for each in results)
    print(f"dumps: {dumped} written by TensorFlow, {agreed} ran and agree")
    return int(bool(kinds["differs"]))


if __name__ == "__main__":
    sys.exit(main())
