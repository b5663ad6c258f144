"""Signatures of SavedModels name feeds and fetches; initializers run by themselves."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.proto import saved_model_pb2

WORDS = ["--feed", 'words=["b", "y", "?"]']
FEED = ["--feed", "x=[[1, 2]]"]
# computed by TensorFlow
Y = "y=[[1.8203125, 5.5546875]]"


@pytest.fixture
def saved(fixtures: Path) -> Path:
    return fixtures / "saved_model"


@pytest.fixture
def tables(fixtures: Path) -> Path:
    return fixtures / "saved_model_tables"


def change(folder: Path, **fields: Any) -> None:
    """Change the saved model in a folder by functions of its first graph."""
    model = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    for function in fields.values():
        function(model.meta_graphs[0])
    (folder / "saved_model.pb").write_bytes(model.SerializeToString())


@pytest.fixture
def copied(tables: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tables, tmp_path / "copied"))


def test_the_default_signature_names_feeds_and_fetches(
    command: Any, saved: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, 2]], "f"))
    feed = f"x=@{tmp_path}/x.npy"
    done = command("run", saved, "--feed", feed, "--fetch", "y", "--expect", Y)
    assert (done.code, done.out.split()[0]) == (0, "y")
    named = command("run", saved, "--signature", "serving_default", "--feed", feed, "--fetch", "y")
    assert named.out == done.out


def test_all_outputs_of_the_signature_are_fetched_by_default(command: Any, saved: Path) -> None:
    values = command("run", saved, *FEED, "--json").json["result"]["values"]
    assert [(item["output"], item["tensor"]) for item in values] == [
        ("label", "StatefulPartitionedCall:0"),
        ("y", "StatefulPartitionedCall:1"),
    ]


def test_files_of_arrays_use_the_names_of_the_signature(
    command: Any, saved: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "in.npz", x=np.array([[1, 2]], "f"))
    folder = tmp_path / "out"
    done = command("run", saved, "--feeds", tmp_path / "in.npz", "--out-dir", folder)
    assert done.code == 0
    assert {file.name for file in folder.iterdir()} == {"label.npy", "y.npy"}


def test_a_name_of_the_signature_precedes_a_node(command: Any, tables: Path) -> None:
    # the graph also has a variable x
    done = command("run", tables, "--signature", "scale", "--feed", "x=[1, 2, 3]")
    assert (done.code, "[1.0, 4.0, 9.0]" in done.out) == (0, True)


def test_an_unknown_name_is_corrected(command: Any, tables: Path, counter: Path) -> None:
    done = command("run", tables, "--feed", "wrds=[]")
    assert (done.code, "did you mean 'words'?" in done.err) == (2, True)
    done = command("run", tables, "--signature", "scal", "--feed", "x=[1, 2, 3]")
    assert (done.code, "did you mean 'scale'?" in done.err) == (2, True)
    done = command("run", tables)
    assert (done.code, "--feed 'words=string[1]:zeros'" in done.err) == (2, True)
    done = command("run", counter, "--signature", "serving_default")
    assert (done.code, "requires a SavedModel" in done.err) == (2, True)


def test_initializers_fill_tables_before_a_run(command: Any, tables: Path) -> None:
    expected = ["--expect", "ids=[-1, 1, -1]", "--expect", "h=[2, -1, -1]"]
    for path in (tables, tables / "saved_model.pb"):
        done = command("run", path, *WORDS, *expected)
        assert (done.code, "1 variable and 2 tables" in done.err) == (0, True)


def test_a_derived_graph_has_tables_and_names_of_its_model(
    command: Any, tables: Path, tmp_path: Path
) -> None:
    lowered = tmp_path / "lowered.pb"
    assert command("lower", tables, "-o", lowered, "--verify", *WORDS).code == 0
    run = command("run", lowered, "--variables", tables, *WORDS, "--expect", "ids=[-1, 1, -1]")
    assert run.code == 0
    same = command("diff", tables, lowered, "--run", "--fetch", "ids", *WORDS)
    assert (same.code, "1 fetch agrees" in same.out) == (0, True)
    whole = command("diff", tables, lowered, "--run", "--signature", "scale")
    assert (whole.code, "1 fetch agrees" in whole.out) == (0, True)


def test_gradients_are_named_by_the_signature(command: Any, saved: Path, tmp_path: Path) -> None:
    output = tmp_path / "gradients.pb"
    done = command("grad", saved, "--ys", "y", "--xs", "x", "--check", *FEED, "-o", output)
    assert (done.code, "agree" in done.err) == (0, True)
    fetch = ["--fetch", "gradients/serving_default_x"]
    assert command("run", output, "--variables", saved, *FEED, *fetch).code == 0


def test_clusters_and_explanations_take_the_names(command: Any, saved: Path) -> None:
    done = command("cluster", saved, "--fetch", "y", "--verify", *FEED, "-o", "/dev/null")
    assert (done.code, "1 fetch agrees" in done.err) == (0, True)
    done = command("explain", saved, "StatefulPartitionedCall", *FEED)
    assert (done.code, "ran once" in done.out) == (0, True)
    done = command("explain", saved, "y", *FEED)
    assert done.out.startswith("StatefulPartitionedCall  ")
    done = command("explain", saved, "x", "y")
    assert done.out.startswith("serving_default_x:0 → StatefulPartitionedCall:1")


def test_the_state_of_a_session_has_the_tables(tables: Path) -> None:
    session = cfgraph.Session(cfgraph.load(tables), state=cfgraph.restore(tables))
    (ids,) = session.run(["StatefulPartitionedCall_1:1"], {"serving_default_words": ["z", "?"]})
    assert ids.tolist() == [2, -1]


def test_an_asset_outside_of_the_folder_is_rejected(
    command: Any, copied: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("x\n")

    def escape(meta: Any) -> None:
        meta.asset_file_def[0].filename = "../../secret.txt"

    change(copied, escape=escape)
    done = command("run", copied, *WORDS)
    assert (done.code, "CFG712" in done.err, "secret.txt" in done.err) == (4, True, True)
    assert command("run", copied, *WORDS, "--allow-io", "--expect", "h=[2, -1, -1]").code == 0


def test_a_damaged_vocabulary_is_an_error_of_the_run(command: Any, copied: Path) -> None:
    (copied / "assets" / "vocab.txt").write_text("x\n\ny\n")
    done = command("run", copied, *WORDS)
    assert (done.code, "empty line" in done.err) == (5, True)
    (copied / "assets" / "vocab.txt").unlink()
    done = command("run", copied, *WORDS)
    assert (done.code, "no such file" in done.err) == (5, True)


def test_a_missing_initializer_is_an_invalid_input(command: Any, copied: Path) -> None:
    def rename(meta: Any) -> None:
        info = meta.signature_def["__saved_model_init_op"].outputs["__saved_model_init_op"]
        info.name = "elsewhere"

    change(copied, rename=rename)
    done = command("run", copied, *WORDS)
    assert (done.code, "initializes its tables by 'elsewhere'" in done.err) == (3, True)


def test_a_signature_may_name_tensors_that_do_not_exist(command: Any, copied: Path) -> None:
    def rename(meta: Any) -> None:
        meta.signature_def["serving_default"].outputs["ids"].name = "elsewhere:0"

    change(copied, rename=rename)
    assert command("show", copied).code == 0
    done = command("run", copied, *WORDS, "--expect", "h=[2, -1, -1]")
    assert (done.code, "elsewhere" in done.err) == (0, False)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", ["saved_model", "saved_model_tables"])
def test_a_summary_fits_the_terminal(
    command: Any, fixtures: Path, monkeypatch: pytest.MonkeyPatch, columns: int, name: str
) -> None:
    monkeypatch.chdir(fixtures)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    done = command("show", name, terminal=True)
    assert max(map(len, done.lines)) <= columns
    assert "serving_default" in done.out


@pytest.mark.parametrize("name", ["saved_model", "saved_model_tables"])
def test_every_suggestion_succeeds(
    command: Any, fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    model = shutil.copytree(fixtures / name, tmp_path / "a model")
    lines = command("show", model).lines
    suggestions = [shlex.split(line) for line in lines[lines.index("next") + 1 :]]
    assert {words[1] for words in suggestions} >= {"show", "lower", "diff", "run"}
    for words in suggestions:
        assert command(*words[1:]).code == 0, words


def test_a_python_file_of_a_saved_model_names_its_variables(
    command: Any, fixtures: Path, tmp_path: Path
) -> None:
    file = tmp_path / "model.py"
    done = command("convert", fixtures / "saved_model", "-o", file)
    assert f"python {file} --variables {fixtures / 'saved_model'}" in done.err
    assert command("convert", fixtures / "saved_model", "-o", file, "-q").err == ""
    done = command("convert", fixtures / "graphs" / "counter.pb", "-o", file)
    assert "--variables" not in done.err


def test_a_summary_lists_loops_inside_functions(command: Any, tmp_path: Path) -> None:
    b = cfgraph.Builder()

    def count(x: Any) -> Any:
        return b.while_loop(lambda v: v < 100.0, lambda v: v * 2.0, x)

    x = b.placeholder("x", "float32", [])
    b.Identity(b.function(count)(x), name="y")
    cfgraph.save(b.graph, tmp_path / "g.pb")
    done = command("show", tmp_path / "g.pb", "--json")
    (loop,) = done.json["result"]["functional_loops"]
    assert loop["function"] in {item["name"] for item in done.json["result"]["functions"]}
    table = command("show", tmp_path / "g.pb").out.split("functional loops")[1]
    assert table.split("functions")[0].split()[-1] == loop["function"]


def test_a_long_command_continues_in_lines_that_a_shell_joins(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "g.graph"
    path.write_text(
        "x = Placeholder() {dtype=float32, shape=[]}\n"
        + "".join(f"{'deep_scope/' * 12}y{i} = Neg(x) {{T=float32}}\n" for i in range(3))
    )
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    lines = command("show", path, terminal=True).lines
    start = next(index for index, line in enumerate(lines) if line.strip().startswith("next"))
    text = "\n".join(lines[start + 1 :])
    assert max(map(len, text.splitlines())) <= 60
    words = shlex.split(text.replace("\\\n", ""))
    assert words == shlex.split(command("show", path).lines[-1])


@pytest.mark.parametrize("verb", ["run", "diff", "freeze", "functionalize"])
def test_a_name_of_another_signature_is_an_error_that_names_it(
    verb: str, command: Any, tables: Path
) -> None:
    options = {"run": ("--feed", "words=string[1]:zeros"), "diff": (tables, "--run")}
    done = command(verb, tables, *options.get(verb, ("-o", "-")), "--fetch", "y")
    assert done.code == 2
    assert "'y' is a name of the signature scale" in done.err
    assert "hint: add --signature scale" in done.err


def test_grad_writes_a_saved_model_whose_signature_has_the_gradients(
    command: Any, saved: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "gradients"
    done = command("grad", saved, "--ys", "y", "--xs", "x,same", "-o", f"{folder}/", "--json")
    assert done.code == 0, done.err
    assert done.json["artifacts"][0]["path"] == f"{folder}/"
    run = command("run", folder, *FEED, "--fetch", "gradients/x", "--fetch", "y")
    assert (run.code, run.out.split()[0]) == (0, "gradients/x")
    assert "[[-0.3671875, 1.1367188]]" in run.out
    # an existing folder needs no slash
    assert command("grad", saved, "--ys", "y", "--xs", "same_1", "-o", folder).code == 0
    shown = command("show", folder).out
    assert "gradients/same_1" in shown
    assert "gradients/x" not in shown


def test_a_note_names_the_tensors_of_a_signature_that_a_file_lacks(
    command: Any, saved: Path, tmp_path: Path
) -> None:
    done = command("grad", saved, "--ys", "y", "--xs", "x", "-o", tmp_path / "g.pb")
    assert "x is serving_default_x:0" in done.err
    assert "y is StatefulPartitionedCall:1" in done.err
    done = command("run", tmp_path / "g.pb", *FEED, "--fetch", "gradients/serving_default_x")
    assert (done.code, "did you mean 'serving_default_x'?" in done.err) == (2, True)
    done = command("grad", saved, "--ys", "y", "--xs", "x", "-o", tmp_path / "g.pb", "--quiet")
    assert "serving_default_x:0" not in done.err


def test_a_folder_takes_no_other_format(command: Any, saved: Path, tmp_path: Path) -> None:
    folder = f"{tmp_path}/new/"
    done = command("grad", saved, "--ys", "y", "--xs", "x", "-o", folder, "--to", "graph")
    assert (done.code, "a SavedModel is not written as graph" in done.err) == (2, True)
    assert not Path(folder).exists()


def test_variables_of_a_frozen_graph_provide_the_names_alone(
    command: Any, saved: Path, tmp_path: Path
) -> None:
    frozen = tmp_path / "frozen.pb"
    assert command("freeze", saved, "-o", frozen).code == 0
    failed = command("run", frozen, *FEED)
    assert "--variables SAVED_MODEL provides the names" in failed.err
    assert (
        command("run", frozen, *FEED, "--variables", saved, "--fetch", "y", "--expect", Y).code == 0
    )
    variables = saved / "variables" / "variables"
    failed = command(
        "run", frozen, "--variables", variables, "--feed", "serving_default_x=[[1, 2]]"
    )
    assert (failed.code, "no variable is needed" in failed.err) == (2, True)
    functions = command("show", frozen).out.partition("\nfunctions\n")[2].partition("\n\n")[0]
    assert "(8 tensors) -> (while_identity: bool)" in functions
    assert max(map(len, functions.splitlines())) < 130


@pytest.mark.parametrize(
    ("name", "hint"), [("yy", "did you mean 'y'?"), ("nope", "outputs of the signature: label, y")]
)
def test_an_unknown_fetch_of_a_model_hints_at_names_of_the_signature(
    name: str, hint: str, command: Any, fixtures: Path
) -> None:
    done = command("run", fixtures / "saved_model", "--fetch", name)
    assert (done.code, f"hint: {hint}" in done.err) == (2, True), done.err
