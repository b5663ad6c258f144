"""Inputs of the fuzzer: files and command lines, each derived from a seed and a number."""

from __future__ import annotations

import functools
import io
import json
import random
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.robustness.byte_mutations import mutate_bytes
from tests.robustness.seed_graphs import FIXTURES, SeedGraph, seed_graphs
from tests.robustness.structure_mutations import mutate_structure
from tests.robustness.text_mutations import mutate_text

# {} is the mutated graph, FEEDS its feeds, NODE and TENSOR names of the graph before mutation
_READS = (
    "check {}",
    "check {} --json",
    "check {} --fetch TENSOR",
    "show {}",
    "show {} --nodes --ops --frames --functions --devices",
    "show {} --deadness",
    "show {} --node NODE",
    "show {} --json --nodes --frames --functions --deadness",
    "explain {} NODE",
    "explain {} NODE NODE",
    "convert {} -o out.graph --verify",
    "convert {} -o out.pbtxt",
    "convert {} -o out.py",
    "convert {} -o out.py --fetch TENSOR --feed TENSOR",
)
_PASSES = (
    "lower {} -o out.pb",
    "lower {} -o out.pb --keep-calls",
    "grad {} -o out.pb --ys TENSOR",
    "grad {} -o out.pb --ys TENSOR --xs TENSOR --unconnected zero",
    "cluster {} -o out.pb",
    "cluster {} -o out.pb --min-size 1",
    "partition {} -o out.pb --devices cpu:0,cpu:1",
    "partition {} -o out.pb --devices cpu:0-2 --seed 3",
    "extract {} -o out.pb --outputs TENSOR",
    "optimize {} -o out.pb",
    "optimize {} -o out.pb --fetch TENSOR --feed TENSOR",
    "extract {} -o out.pb --outputs TENSOR --inputs TENSOR",
    "functionalize {} -o out.pb",
    "functionalize {} -o out.pb --fetch TENSOR --dead-as zeros",
    "functionalize {} -o out.pb --target converter",
    "freeze {} -o out.pb --fetch TENSOR",
    "optimize {} -o out.pb --unroll 8",
)
_RUNS = (
    "run {} FEEDS",
    "run {} FEEDS",
    "run {} FEEDS --fetch TENSOR",
    "run {} FEEDS --target NODE",
    "run {} FEEDS --devices cpu:0,cpu:1 --schedule random --soft",
    "run {} FEEDS --engine compiled",
)
_RARE = (
    "show {} --format dot",
    "show {} --format tsv",
    "show {} --html out.html",
    "show {} --filter live:* --nodes",
    "check {} --format sarif",
    "check {} --format junit",
    "check {} --format github",
    "convert {} -o out.pb",
    "convert {} -o out.pbtxt --verify",
    "convert {} --to graph -o out.gz",
    "cluster {} -o out.pb --regions",
    "cluster {} -o out.pb --explain",
    "cluster {} -o out.pb --deadness inputs",
    "cluster {} --what-if Print --format json",
    "grad {} -o out.pb",
    "grad {} -o out.pb --ys TENSOR --order 2",
    "grad {} -o out.pb --ys TENSOR --recompute 2",
    "partition {} -o parts/ --devices cpu:0,gpu:0 --soft --dump-placement out.toml",
    "partition {} -o out.pb --devices cpu:0-1 --place *=cpu:1",
    "lower {} -o out.pb --verify --cases 1 FEEDS",
    "cluster {} -o out.pb --verify --cases 1",
    "partition {} -o out.pb --devices cpu:0-1 --verify --cases 1",
    "diff {} {}",
    "diff {} other.pb",
    "diff other.pb {} --by structure",
    "diff {} other.pb --json",
    "diff {} other.pb --run FEEDS --cases 1",
    "explain {} NODE --run FEEDS",
    "explain {} NODE --json",
    "run {} FEEDS --engine tokens",
    "run {} FEEDS --trace",
    "run {} FEEDS --timeline",
    "run {} FEEDS --tap * --json",
    "run {} FEEDS --html out.html",
    "run {} FEEDS --trace-out out.json",
    "run {} FEEDS --clock virtual --costs costs.toml --devices cpu:0,gpu:0 --gpu simulated --soft",
    "run {} FEEDS --clock virtual --costs costs.toml --no-values --until-iteration 2",
    "run {} FEEDS --memory cpu:0=1MiB",
    "run {} FEEDS --out-dir out",
)
# whose values, after the =, are texts to mutate
_OPTIONS = (
    "run {} --feed VALUE",
    "run {} FEEDS --fetch VALUE",
    "convert {} -o out.py --fetch VALUE --feed VALUE",
    "run {} FEEDS --expect VALUE",
    "run {} FEEDS --target VALUE",
    "run {} FEEDS --devices VALUE",
    "run {} FEEDS --place VALUE",
    "run {} FEEDS --tap VALUE",
    "run {} FEEDS --memory VALUE",
    "run {} FEEDS --seed VALUE --swap-above VALUE",
    "run {} --feeds VALUE",
    "show {} --filter VALUE",
    "show {} --node VALUE",
    "show {} --format VALUE",
    "check {} --fetch VALUE",
    "check {} --select VALUE --ignore VALUE",
    "grad {} --ys VALUE -o out.pb",
    "grad {} --ys TENSOR --xs VALUE -o out.pb",
    "grad {} --ys TENSOR --grad-ys VALUE -o out.pb",
    "grad {} --ys TENSOR --stop VALUE -o out.pb",
    "cluster {} --only-ops VALUE --exclude-ops VALUE -o out.pb",
    "cluster {} --what-if VALUE",
    "cluster {} --min-size VALUE -o out.pb",
    "partition {} --devices VALUE -o out.pb",
    "partition {} --devices cpu:0,cpu:1 --place VALUE -o out.pb",
    "lower {} --function VALUE -o out.pb",
    "pipeline {} -p VALUE -o out.pb",
    "extract {} --outputs VALUE --inputs VALUE --iteration VALUE -o out.pb",
    "optimize {} --only VALUE --keep VALUE -o out.pb",
    "lower {} --verify --cases 1 --size VALUE -o out.pb",
    "diff {} {} --ignore VALUE",
    "explain {} VALUE",
    "explain {} VALUE VALUE",
    "explain VALUE",
    "VALUE {}",
)
_FILES = (
    "run {} --feeds feeds.json",
    "run {} --feeds feeds.npz",
    "run {} --feed NAME=@x.npy",
    "run {} --feed NAME=@feeds.npz[NAME]",
    "run {} FEEDS --clock virtual --costs costs.toml",
    "run {} FEEDS --rules rules.toml --devices cpu:0,cpu:1",
    "partition {} --rules rules.toml --devices cpu:0,cpu:1 -o out.pb",
    "run saved_model FEEDS --variables saved_model",
    "run compressed_index/graph.pb --variables compressed_index/model.ckpt --feed ids=[1,3]",
)
_RULES = """schema = "cfgraph.placement/1"
default = "cpu:0"
[[rule]]
node = ["*body*", "x"]
op = "Add*"
device = "cpu:1"
hard = true
[[rule]]
frame = "*"
device = "cpu:0"
by = "cost"
[[colocate]]
nodes = ["a*", "b*"]
"""
_COSTS = (FIXTURES.parent / "docs" / "cluster.toml").read_text(encoding="utf-8")
# what the lines above read beside the graph
_FOLDERS = (FIXTURES / "saved_model", FIXTURES / "freezing" / "compressed_index")


@dataclass
class Case:
    """Files and the command lines that read them."""

    name: str
    kind: str
    files: dict[str, bytes] = field(default_factory=dict)
    lines: list[list[str]] = field(default_factory=list)


def fuzz_case(seed: int, number: int) -> Case:
    """Return input `number` of a seed, the same in every process."""
    rng = random.Random(f"{seed}:{number}")
    graphs = seed_graphs()
    first, second = rng.choice(graphs), rng.choice(graphs)
    kinds = {"structure": 54, "bytes": 16, "text": 14, "options": 9, "files": 7}
    kind = rng.choices(list(kinds), list(kinds.values()))[0]
    case = Case(f"{seed}-{number}", kind)
    _GENERATORS[kind](rng, case, first, second)
    return case


def _from_structure(rng: random.Random, case: Case, first: SeedGraph, second: SeedGraph) -> None:
    changed = mutate_structure(rng, first.proto, second.proto)
    case.files["g.pb"] = changed.SerializeToString(deterministic=True)
    _add_graph_lines(rng, case, first, rng.choice((1, 1, 2)))


def _from_bytes(rng: random.Random, case: Case, first: SeedGraph, second: SeedGraph) -> None:
    case.files["g.pb"] = mutate_bytes(rng, first.data, second.data)
    _add_graph_lines(rng, case, first, 1)


def _from_text(rng: random.Random, case: Case, first: SeedGraph, second: SeedGraph) -> None:
    name = rng.choice(("text", "text", "pbtxt"))
    texts = [getattr(seed, name).decode() for seed in (first, second)]
    changed = mutate_text(rng, *texts)
    case.files["g.pb"] = changed.encode("utf-8", "surrogatepass")
    _add_graph_lines(rng, case, first, 1)


def _from_options(rng: random.Random, case: Case, first: SeedGraph, second: SeedGraph) -> None:
    case.files["g.pb"] = first.data
    line = _words(rng, rng.choice(_OPTIONS), first)
    case.lines = [[_value(rng, first) if word == "VALUE" else word for word in line]]
    _add_other_files(rng, case, first, mutated=False)


def _from_files(rng: random.Random, case: Case, first: SeedGraph, second: SeedGraph) -> None:
    case.files["g.pb"] = first.data
    case.lines = [_words(rng, rng.choice(_FILES), first)]
    _add_other_files(rng, case, first, mutated=True)


_GENERATORS = {
    "structure": _from_structure,
    "bytes": _from_bytes,
    "text": _from_text,
    "options": _from_options,
    "files": _from_files,
}


def _add_graph_lines(rng: random.Random, case: Case, graph: SeedGraph, count: int) -> None:
    for _ in range(count):
        pool = rng.choices((_READS, _PASSES, _RUNS, _RARE), (34, 30, 20, 16))[0]
        template = rng.choice(pool)
        if "other.pb" in template:
            case.files["other.pb"] = graph.data
        if "costs.toml" in template:
            case.files["costs.toml"] = _COSTS.encode()
        case.lines.append(_words(rng, template, graph))


@functools.cache
def _files_of(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".md")
    return {f"{folder.name}/{path.relative_to(folder)}": path.read_bytes() for path in paths}


def _words(rng: random.Random, template: str, graph: SeedGraph) -> list[str]:
    words = list[str]()
    for word in template.split():
        if word == "FEEDS":
            for feed in graph.feeds:
                words += ["--feed", feed] * (rng.random() < 0.95)
        elif word == "{}":
            words.append("g.pb")
        elif word == "NODE":
            words.append(rng.choice(graph.nodes))
        elif word == "TENSOR":
            words.append(f"{rng.choice(graph.nodes)}:0")
        else:
            words.append(word.replace("NAME", _feed_name(graph)))
    return words


def _feed_name(graph: SeedGraph) -> str:
    return graph.feeds[0].split("=")[0] if graph.feeds else graph.nodes[0]


def _value(rng: random.Random, graph: SeedGraph) -> str:
    """A value for some option, mutated."""
    node = rng.choice(graph.nodes)
    name = _feed_name(graph)
    value = rng.choice(
        (
            *graph.feeds[:2],
            f"{node}:0",
            f"{name}=[[1,2],[3,4]]",
            f"{name}=f32[2,3]:uniform(0,1)",
            f"{name}=i32[4]:arange",
            f"{name}=3.5",
            f'{name}=["a","b"]',
            f"{name}=@x.npy",
            f"{name}=@feeds.npz[{name}]",
            "feeds.npz",
            "feeds.json",
            "cpu:0,gpu:0-3",
            "/job:w/task:0-1/cpu:0",
            "op:Add*=cpu:1",
            "frame:*",
            "live:pred",
            "gpu:0=4MiB",
            "CFG1,CFG2*",
            "Add,Mul",
            "json",
            "4",
        )
    )
    changed = mutate_text(rng, value) if rng.random() < 0.8 else value
    # a process cannot receive NUL or half of a surrogate pair
    return changed.replace("\0", "").encode("utf-8", "replace").decode()


def _add_other_files(rng: random.Random, case: Case, graph: SeedGraph, *, mutated: bool) -> None:
    name = _feed_name(graph)
    dtype = rng.choice(("f4", "i4", "f8", "S3", "?", "u1"))
    array = np.arange(rng.choice((1, 4, 6))).astype(dtype)
    npy, npz = io.BytesIO(), io.BytesIO()
    np.save(npy, array)
    np.savez(npz, **{name.replace("/", "_"): array})
    texts = {
        "feeds.json": json.dumps({name: [0.5] * array.size}),
        "costs.toml": _COSTS,
        "rules.toml": _RULES,
    }
    files = {"x.npy": npy.getvalue(), "feeds.npz": npz.getvalue()}
    for folder in _FOLDERS:
        if any(word.startswith(folder.name) for word in case.lines[0]):
            files |= _files_of(folder)
    if mutated:
        texts = {path: mutate_text(rng, text) for path, text in texts.items()}
        chosen = rng.choice(sorted(files))
        for path in sorted({"x.npy", "feeds.npz", chosen}):
            files[path] = mutate_bytes(rng, files[path], graph.data)
    case.files |= files
    case.files |= {path: text.encode("utf-8", "replace") for path, text in texts.items()}
