"""A graph reads inside the folders that the user names, and writes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.errors import ExecutionError, Unsupported, UsageError
from cfgraph.runtime.io_policy import IoPolicy

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


@pytest.fixture
def saved(fixtures: Path, tmp_path: Path) -> Path:
    """A copy of a SavedModel, whose variables are at variables/variables."""
    return Path(shutil.copytree(fixtures / "saved_model", tmp_path / "saved"))


def reader(prefix: Path | str, name: str = f"w{VALUE}") -> cfgraph.Graph:
    """A graph that restores a tensor."""
    return cfgraph.loads(
        f"""
prefix = Const() {{dtype=string, value=string[]:"{prefix}"}}
names = Const() {{dtype=string, value=string[1]:["{name}"]}}
slices = Const() {{dtype=string, value=string[1]:[""]}}
r = RestoreV2(prefix, names, slices) {{dtypes=(float32)}}
""".encode()
    )


def printer(target: Path, where: str = "") -> cfgraph.Graph:
    """A graph that prints to a file, in the body of the graph or in a function."""
    attrs = f'{{output_stream="file://{target}"}}'
    if not where:
        text = f's = Const() {{dtype=string, value=string[]:"x"}}\np = PrintV2(s) {attrs}\n'
        return cfgraph.loads(text.encode())
    builder = cfgraph.Builder()

    def body(i: Any) -> Any:
        text = builder.AsString(i)
        builder.PrintV2(text, output_stream=f"file://{target}")
        return i + 1

    builder.while_loop(lambda i: i < 2, body, [0], name="p")
    return builder.graph


def test_a_graph_writes_no_file_before_anything_runs(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with pytest.raises(Unsupported, match="PrintV2 writes a file") as caught:
        cfgraph.Session(printer(target)).run([], targets=["p"])
    assert (caught.value.code, caught.value.node) == ("CFG712", "p")
    assert "--allow-io" in str(caught.value.hint)
    assert not target.exists()
    cfgraph.Session(printer(target), allow_io=True).run([], targets=["p"])
    assert target.read_text() == "x\n"


def test_a_printing_node_in_a_loop_writes_no_file(tmp_path: Path) -> None:
    target = tmp_path / "target"
    graph = printer(target, "loop")
    targets = [node.name for node in graph if node.op in ("While", "StatelessWhile")]
    for options in ({}, {"devices": "cpu:0,cpu:1"}, {"jit": "numpy"}):
        with pytest.raises(Unsupported) as caught:
            cfgraph.Session(graph, **options).run([], targets=targets)
        assert caught.value.code == "CFG712"
    assert not target.exists()
    cfgraph.Session(graph, allow_io=True).run([], targets=targets)
    assert target.read_text() == "0\n1\n"


def test_a_cluster_writes_no_file(tmp_path: Path) -> None:
    target = tmp_path / "target"
    graph = cfgraph.loads(
        f"""
s = Const() {{dtype=string, value=string[]:"x"}}
c = XlaLaunch(s) {{Tconstants=(), Targs=(string), Nresources=0, Tresults=(string), function=@f}}

function f(x: string) -> (y: string) {{
  p = PrintV2(x) {{output_stream="file://{target}"}}
  z = Identity(x, ^p) {{T=string}}
  return y = z:output:0
}}
""".encode()
    )
    with pytest.raises(Unsupported, match="PrintV2 writes a file"):
        cfgraph.Session(graph).run(["c"])
    assert not target.exists()
    cfgraph.Session(graph, allow_io=True).run(["c"])
    assert target.read_text() == "x\n"


def test_a_file_that_cannot_be_written_is_an_error_of_the_node(tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match="cannot write") as caught:
        cfgraph.Session(printer(tmp_path), allow_io=True).run([], targets=["p"])
    assert caught.value.node == "p"


def test_a_graph_reads_only_below_the_roots(saved: Path, tmp_path: Path) -> None:
    graph = reader(saved / "variables" / "variables")
    for policy in (False, IoPolicy(), IoPolicy().with_roots(tmp_path / "sav")):
        with pytest.raises(Unsupported, match="outside of the folders") as caught:
            cfgraph.Session(graph, allow_io=policy).run(["r"])
        assert (caught.value.code, caught.value.node) == ("CFG712", "r")
    for policy in (True, IoPolicy().with_roots(saved)):
        assert cfgraph.Session(graph, allow_io=policy).run(["r"])[0].shape == (2, 2)


def test_the_prefix_of_a_checkpoint_covers_its_files_alone(saved: Path) -> None:
    prefix = saved / "variables" / "variables"
    policy = IoPolicy().with_roots(prefix)
    policy.require_readable(f"{prefix}.index")
    policy.require_readable(f"{prefix}.data-00000-of-00001")
    for path in (f"{prefix}2.index", saved / "variables" / "secret", f"{prefix}.secret"):
        with pytest.raises(Unsupported):
            policy.require_readable(str(path))


@pytest.mark.parametrize("path", ["../outside.index", "variables/../../outside.index"])
def test_a_path_that_climbs_out_of_a_root_is_outside(saved: Path, path: str) -> None:
    with pytest.raises(Unsupported):
        IoPolicy().with_roots(saved).require_readable(f"{saved}/{path}")


@pytest.mark.parametrize("linked", ["variables.index", "variables.data-00000-of-00001"])
def test_a_link_counts_as_the_file_that_it_leads_to(
    saved: Path, tmp_path: Path, linked: str
) -> None:
    file, outside = saved / "variables" / linked, tmp_path / "outside"
    file.rename(outside)
    file.symlink_to(outside)
    with pytest.raises(Unsupported) as caught:
        cfgraph.restore(saved)
    assert caught.value.code == "CFG712"
    with pytest.raises(Unsupported):
        cfgraph.restore(saved / "variables" / "variables", cfgraph.load(saved))
    assert len(cfgraph.restore(saved, allow_io=True)) == 4
    # a link that stays inside, and one to the folder itself
    file.unlink()
    outside.rename(saved / "inside")
    file.symlink_to(saved / "inside")
    (tmp_path / "link").symlink_to(saved)
    assert len(cfgraph.restore(tmp_path / "link")) == 4


def test_no_hint_names_files_outside(saved: Path) -> None:
    prefix = saved / "variables" / "variable"
    with pytest.raises(Unsupported) as caught:
        cfgraph.Session(reader(prefix)).run(["r"])
    assert "variables.index" not in str(caught.value)
    with pytest.raises(Unsupported):
        cfgraph.Session(reader("/etc/passw")).run(["r"])


def test_permission_is_a_truth_value() -> None:
    with pytest.raises(UsageError, match="True or False"):
        IoPolicy.parse("no")


def test_files_beside_a_checkpoint_are_not_part_of_it(tmp_path: Path) -> None:
    policy = IoPolicy().with_roots(tmp_path / "ckpt")
    for name in ("ckpt.index", "ckpt.data-00000-of-00001"):
        policy.require_readable(str(tmp_path / name))
    for name in ("ckpt.index.secret", "ckpt.data-secret", "ckpt"):
        with pytest.raises(Unsupported):
            policy.require_readable(str(tmp_path / name))
