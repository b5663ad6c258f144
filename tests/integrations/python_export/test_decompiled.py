"""Graphs as Python files: their text, their values, and names that try to leave their places."""

from __future__ import annotations

import keyword
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cfgraph
from cfgraph.cli import command_line as cli
from cfgraph.console.transforms.convert import PythonOptions
from cfgraph.errors import CfgraphError, Unsupported
from cfgraph.integrations.python_export.convert import python_source, write_python
from cfgraph.integrations.python_export.decompile import decompile
from cfgraph.integrations.python_export.identifiers import Identifiers, snake_case
from cfgraph.integrations.python_export.script import Script
from cfgraph.ir.graph import Graph
from cfgraph.runtime.cluster_runner import ClusterRunner
from cfgraph.runtime.compiled.value_expressions import raw, strings, value_expression
from cfgraph.runtime.engine.plan import RunSpec
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.preparation.prepare import prepare
from cfgraph.runtime.preparation.run_config import RunConfig
from cfgraph.runtime.session import Session
from cfgraph.script import main
from tests.conformance import recorded
from tests.integrations.python_export.generated_python import source_fault
from tests.runtime.compiled.agreement import difference
from tests.runtime.compiled.test_generated_code import BRANCHES, GRAPHS, counter, graph_of
from tests.runtime.graphs import loop
from tests.sampled import sampled


def loaded(graph: Graph, options: PythonOptions, folder: Path) -> dict[str, Any]:
    """The names of the Python file of a graph."""
    file = folder / "converted.py"
    write_python(python_source(graph, options), str(file))
    names = {"__name__": "converted", "__file__": str(file)}
    exec(compile(file.read_text(), file, "exec"), names)
    return names


def run(names: dict[str, Any], feeds: dict[str, Any]) -> Any:
    script: Script = names["script"]
    by_tensor = {tensor: parameter for parameter, tensor in script.tensors.items()}
    return names["run"](**{by_tensor[name]: value for name, value in feeds.items()})


def outcome(function: Any, *arguments: Any, **options: Any) -> Any:
    """The values of a run, or the code and the message of its error."""
    try:
        return function(*arguments, **options)
    except CfgraphError as error:
        return error.code, error.message


COUNTER = """\
def compute(step, n):
    count = zero
    while True:  # while/LoopCond (LoopCond)
        less = count < n  # while/Less (Less)
        if not test(less):  # while/Switch (Switch)
            break
        count = count + one  # while/add (AddV2)
    return (count,)


def run(n=n_default):
    return script.run(compute, n)
"""


@pytest.mark.smallest
def test_a_counter_is_a_loop_with_names() -> None:
    assert COUNTER in python_source(counter(), PythonOptions()).text


def test_the_guide_shows_the_code_of_its_loop() -> None:
    page = (GRAPHS.parents[1] / "docs" / "guide.md").read_text()
    text = page.split("cat > count.graph <<'END'\n")[1].split("END\n")[0]
    shown = page.split("```py\n")[1].split("```\n")[0]
    assert shown in python_source(graph_of(text), PythonOptions(("exit",))).text


# a reason that only a run has, which explains its error on tokens
MAY_BE_DEAD = "a fetch of a run with effects may be dead"


@pytest.mark.parametrize("case", sampled(recorded.parameters("session"), 12))
def test_a_recorded_session_has_the_values_of_its_file(
    case: dict[str, Any], tmp_path: Path
) -> None:
    states = State(), State()
    for number, record in enumerate(case["runs"]):
        tensors, feeds, targets = recorded.run_arguments(record)
        options = PythonOptions(tensors, tuple(feeds), targets)
        graph = recorded.graph(record["graph"])
        session = Session(graph, engine="compiled", state=states[0], soft_placement=True)
        expected = outcome(session.run, tensors, feeds, targets, timeout=60)
        if session.fallback not in ("", MAY_BE_DEAD) or session.ran is None:
            with pytest.raises(CfgraphError):
                python_source(graph, options)
            return
        folder = tmp_path / str(number)
        folder.mkdir()
        names = loaded(graph, options, folder)
        names["script"].state = states[1]
        actual = outcome(run, names, feeds)
        if isinstance(expected, tuple):
            assert isinstance(actual, tuple)
        else:
            differences = list(map(difference, expected, actual))
            assert not any(differences), differences


HOSTILE = (
    "x\n__import__('os').abort()",
    "x\x85import os",
    "x\u2028import os",
    "x\x0cimport os",
    "x\\\nimport os",
    "'''+abort()+'''",
    '"""+abort()+"""',
    "{0.__class__}",
    "%s{}",
    "run",
    "print",
    "class",
    "_",
    "__builtins__",
    "e\u0301\u00e9",
    "\u202ename",
    "i1",
    "step",
    "test",
    "\ud800",
)


RANDOM = """
v = VarHandleOp() {dtype=int32, shape=[], shared_name="v"}
init = AssignVariableOp(v, zero) {dtype=int32}
none = Const(^body) {dtype=int32, value=int32[0]:[]}
random = RandomUniformInt(none, low, high) {Tout=int32, T=int32, seed=3, seed2=7}
low = Const(^body) {dtype=int32, value=int32[]:1}
high = AddV2(body, many)
many = Const(^body) {dtype=int32, value=int32[]:100}
"""


def test_hostile_names_stay_in_strings_and_comments(tmp_path: Path) -> None:
    for name in HOSTILE:
        graph = graph_of(BRANCHES)
        run_spec = RunSpec(
            graph, (graph.tensor("out"),), (), (graph.tensor("x"), graph.tensor("p"))
        )
        spec, plans = prepare(run_spec, RunConfig(), ClusterRunner(None))
        for node in spec.graph:
            node.name = f"{node.name}/{name}"  # past the rule for names of nodes
            node.attrs["text\n"] = name.encode(errors="surrogatepass")
        text = decompile(spec, plans).text
        (tmp_path / "converted.py").write_text(text)
        assert not source_fault(tmp_path / "converted.py")
        names = {"__name__": "converted", "__file__": str(tmp_path / "converted.py")}
        exec(text, names)
        assert names["compute"](None, np.float32(3), np.bool_(True)) == (-6,), name


@pytest.mark.parametrize("name", ["file", "allow_pickle", "args", "arr_0"])
def test_a_large_constant_may_have_any_name(name: str, tmp_path: Path) -> None:
    b, value = cfgraph.Builder(), np.arange(1000, dtype=np.float32)
    x = b.placeholder("x", "float32", [1000])
    b.AddV2(b.Const(value=value, dtype="float32", name=name), x, name="out")
    names = loaded(b.graph, PythonOptions(["out"]), tmp_path)
    assert not difference(run(names, {"x:0": value})[0], value + value)
    assert [*names["script"].arrays] == [name]


def test_hostile_names_of_loops_and_variables_are_strings(tmp_path: Path) -> None:
    for index, name in enumerate(HOSTILE):
        label = name.encode(errors="surrogatepass")
        graph = graph_of(loop().replace("add = AddV2(body", "add = AddV2(random") + RANDOM)
        for node in graph:
            if "frame_name" in node.attrs:
                node.attrs["frame_name"] = label
        graph["v"].attrs["shared_name"] = label
        folder = tmp_path / str(index)
        folder.mkdir()
        session = Session(graph, engine="compiled")
        expected = outcome(session.run, ["out:0"], {"n:0": np.int32(9)}, ["init"])
        assert not session.fallback
        names = loaded(graph, PythonOptions(("out:0",), ("n:0",), ("init",)), folder)
        assert not source_fault(folder / "converted.py")
        assert names["run"](np.int32(9)) == expected


def test_identifiers_are_plain_and_unused() -> None:
    identifiers = Identifiers(["np", "step"])
    words = [*HOSTILE, *keyword.kwlist, "np", "i7", "MatMul", "MatMul", "9lives", "", "a" * 500]
    names = [identifiers.unique(word) for word in words]
    assert len(set(names)) == len(words)
    assert not [name for name in names if not name.isidentifier() or not name.isascii()]
    assert not [name for name in names if keyword.iskeyword(name) or name.startswith("_")]
    assert not {"np", "step", "i7", "print", "class"} & set(names)
    assert snake_case("while/MatMul_1") == "while_mat_mul_1"


NUMBERS = [
    np.float32(0.1),
    np.float32(np.nan),
    np.array([-np.nan, np.inf, -0.0, 1e-45], np.float32),
    np.array([[1, 2], [3, 4]], np.int8),
    np.array(5, np.uint64),
    np.zeros((0, 3), np.float16),
    np.array([complex(-0.0, np.nan)], np.complex64),
    np.array([1.5, -2], ml_dtypes.bfloat16),
    np.array([True, False]),
    np.bool_(True),
    np.array([b"a\n", b"\xff"], object),
    np.array([np.float32(1 / 3)] * 3 + [2], np.float32).reshape(2, 2),
]


def test_literals_reproduce_values() -> None:
    names = {"np": np, "raw": raw, "strings": strings}
    for value in NUMBERS:
        text = value_expression(value)
        assert text is not None
        assert text.isascii()
        assert not difference(eval(text, names), value)
    repeated = value_expression(np.broadcast_to(np.float32(7), (1 << 20, 1 << 20)))
    assert repeated == "np.broadcast_to(np.float32(7.0), (1048576, 1048576))"


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["float32", "bfloat16"])
def test_large_constants_are_in_a_file_of_arrays(dtype: Any, tmp_path: Path) -> None:
    b = cfgraph.Builder()
    weights = np.arange(1000).astype(dtype)
    b.Neg(b.const(weights), name="y")
    names = loaded(b.graph, PythonOptions(), tmp_path)
    assert not difference(names["run"]()[0], -weights)
    assert (tmp_path / "converted.npz").stat().st_size > 2000


def test_a_graph_without_a_form_names_the_reason() -> None:
    text = "a = Placeholder() {dtype=int32}\nb = Placeholder() {dtype=int32}\nm = Merge(a, b)\n"
    with pytest.raises(Unsupported, match="a Merge may have two live inputs"):
        python_source(graph_of(text), PythonOptions(("m:0",)))


def test_an_error_names_the_line_and_the_node(tmp_path: Path) -> None:
    text = "a = Placeholder() {dtype=int32}\nb = Placeholder() {dtype=int32}\nsum/x = AddV2(a, b)\n"
    names = loaded(graph_of(text), PythonOptions(("sum/x:0",)), tmp_path)
    with pytest.raises(cfgraph.ExecutionError) as caught:
        names["run"](np.ones(2, np.int32), np.ones(3, np.int32))
    line = int(str(caught.value.path).rpartition(":")[2])
    assert "# sum/x (AddV2)" in (tmp_path / "converted.py").read_text().splitlines()[line - 1]
    assert caught.value.node == "sum/x"


def test_a_saved_model_has_the_names_of_its_signature(tmp_path: Path, capsys: Any) -> None:
    folder, file = str(GRAPHS.parent / "saved_model"), str(tmp_path / "model.py")
    assert cli.run(["convert", folder, "-o", file, "--quiet"]) == 0
    assert cli.run(["run", folder, "--feed", "x=[[1,2]]", "--quiet"]) == 0
    printed = capsys.readouterr().out
    line = [sys.executable, file, "--feed", "x=[[1,2]]", "--variables", folder]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == printed
    assert "y (" in printed
    lacking = subprocess.run(line[:2], capture_output=True, text=True, check=False)
    assert "a feed is missing: x (" in lacking.stderr
    described = subprocess.run([*line[:2], "--help"], capture_output=True, text=True, check=False)
    assert described.stdout.startswith("Usage: model.py [OPTIONS]")


def test_a_file_has_the_names_of_the_signature_that_is_requested(
    tmp_path: Path, capsys: Any
) -> None:
    folder, file = str(GRAPHS.parent / "saved_model_tables"), str(tmp_path / "scale.py")
    signature, feed = ["--signature", "scale"], ["--feed", "x=[1, 2, 3]"]
    assert cli.run(["convert", folder, "-o", file, "--quiet", *signature]) == 0
    assert cli.run(["run", folder, *feed, "--quiet", *signature]) == 0
    line = [sys.executable, file, *feed, "--variables", folder]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, capsys.readouterr().out, "")


@pytest.mark.smallest
def test_a_file_runs_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "count.py"
    graph = cfgraph.load(GRAPHS / "counter.pb")
    write_python(python_source(graph, PythonOptions()), str(file))
    line = [sys.executable, str(file), "--feed"]
    done = subprocess.run([*line, "n=5"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "count:0  int32[]  = 5\n", "")
    failed = subprocess.run([*line, "m=5"], capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "inputs of the graph: n" in failed.stderr
    lacking = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (lacking.returncode, lacking.stderr) == (
        2,
        "error: option '--feed' requires an argument\n  hint: see `count.py --help`\n",
    )


@pytest.mark.parametrize("text", ["y = Square(x)", "y = Identity(z)\nz = Rint(x)"])
def test_a_file_imports_what_only_its_function_uses(text: str, tmp_path: Path) -> None:
    graph = graph_of(f"x = Placeholder() {{dtype=float32, shape=[2]}}\n{text}\n")
    names = loaded(graph, PythonOptions(("y",)), tmp_path)
    assert "import numpy as np\n" in (tmp_path / "converted.py").read_text()
    fed = np.array([1.5, 2.5], np.float32)
    (expected,) = Session(graph).run(["y"], {"x": fed})
    assert not difference(names["run"](fed)[0], expected)


HANDLE = """
w = Placeholder() {dtype=resource, shape=[]}
y = ReadVariableOp(w) {dtype=float32}
"""


@pytest.mark.parametrize(("value", "code"), [("3", 0), ('"a"', 2), ("1e99", 2)])
def test_a_file_converts_the_value_of_a_handle_as_a_run_does(
    value: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    graph, feed = graph_of(HANDLE), ["--feed", f"w={value}"]
    names = loaded(graph, PythonOptions(), tmp_path)
    cfgraph.save(graph, tmp_path / "g.pb")
    assert cli.run(["run", str(tmp_path / "g.pb"), *feed, "--quiet"]) == code
    expected = capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["converted.py", *feed])
    with pytest.raises(SystemExit) as ended:
        main(names["script"], names["run"])
    assert (ended.value.code, capsys.readouterr()) == (code, expected)
    assert ("CFG034" in expected.err) == bool(code)


def test_a_bug_in_a_file_has_hints_that_apply_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    graph = graph_of("y = Const() {dtype=int32, value=int32[]:1}")
    names = loaded(graph, PythonOptions(), tmp_path)
    monkeypatch.setattr(sys, "argv", ["converted.py"])
    with pytest.raises(SystemExit) as ended:
        main(names["script"], lambda: names["lost"])
    assert ended.value.code == 70
    lines = capsys.readouterr().err.splitlines()
    assert "KeyError" in lines[0]
    assert lines[1:] == ["  hint: report it with converted.py; CFGRAPH_DEBUG=1 prints a traceback"]
