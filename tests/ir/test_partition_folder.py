from __future__ import annotations

import json
from pathlib import Path

import pytest

import cfgraph
from cfgraph import Graph, InvalidInput, UsageError

A, B = (f"/job:localhost/replica:0/task:0/device:CPU:{number}" for number in range(2))
FILES = [f"job_localhost_replica_0_task_0_device_CPU_{number}.pb" for number in range(2)]

TEXT = f"""
x = Placeholder() {{dtype=float32, shape=[]}} @"{A}"
a = PartitionedCall(x) {{Tin=(float32), Tout=(float32), f=@double}} @"{A}"
y = Placeholder() {{dtype=float32, shape=[]}} @"{B}"
b = PartitionedCall(y) {{Tin=(float32), Tout=(float32), f=@quadruple}} @"{B}"
c = NoOp(^b) @"{B}"
function double(x: float32) -> (y: float32) {{
  add = AddV2(x, x) {{T=float32}}
  return y = add:z:0
}}
function idle(x: float32) -> (y: float32) {{
  return y = x
}}
function quadruple(x: float32) -> (y: float32) {{
  once = double(x)
  twice = double(once:y:0)
  return y = twice:y:0
}}
"""


def graph(text: str = TEXT) -> Graph:
    return cfgraph.loads(text.encode(), "graph")


def saved(tmp_path: Path, text: str = TEXT) -> Path:
    cfgraph.save(graph(text), f"{tmp_path}/parts/")
    return tmp_path / "parts"


def test_a_folder_gives_back_the_graph_that_was_saved(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    assert sorted(file.name for file in folder.iterdir()) == [*FILES, "manifest.json"]
    assert cfgraph.dumps(cfgraph.load(folder), "graph") == cfgraph.dumps(graph(), "graph")


def test_a_partitioned_graph_comes_back_byte_for_byte(tmp_path: Path) -> None:
    fixture = Path(__file__).parents[2] / "fixtures/passes/partition"
    for path in sorted(fixture.glob("*.graph")):
        whole = cfgraph.loads(path.read_bytes().partition(b"# expect\n")[2], "graph")
        cfgraph.save(whole, f"{tmp_path}/{path.stem}/")
        assert cfgraph.dumps(cfgraph.load(tmp_path / path.stem)) == cfgraph.dumps(whole)


def test_each_part_is_a_graph_with_the_functions_that_it_calls(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    first, second = (cfgraph.load(folder / name) for name in FILES)
    assert [list(first.nodes), list(second.nodes)] == [["x", "a"], ["y", "b", "c"]]
    assert set(first.functions) == {"double", "idle"}  # nothing calls idle; it must not be lost
    assert set(second.functions) == {"double", "quadruple"}


def test_the_manifest_lists_the_devices(tmp_path: Path) -> None:
    manifest = json.loads((saved(tmp_path) / "manifest.json").read_text())
    parts = [
        (partition["device"], partition["file"], partition["nodes"])
        for partition in manifest["parts"]
    ]
    assert parts == [(A, FILES[0], 2), (B, FILES[1], 3)]


def test_a_part_that_links_out_of_the_folder_is_invalid(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    part, elsewhere = folder / FILES[0], tmp_path / "elsewhere.pb"
    part.rename(elsewhere)
    part.symlink_to(elsewhere)
    with pytest.raises(InvalidInput, match="outside of the folder"):
        cfgraph.load(folder)
    elsewhere.rename(folder / "inside.pb")
    part.unlink()
    part.symlink_to("inside.pb")
    assert "x" in cfgraph.load(folder).nodes


@pytest.mark.parametrize("name", [FILES[0], "manifest.json"])
def test_no_link_out_of_the_folder_is_written_through(name: str, tmp_path: Path) -> None:
    folder = saved(tmp_path)
    whole, elsewhere = cfgraph.load(folder), tmp_path / "elsewhere"
    (folder / name).rename(elsewhere)
    (folder / name).symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    with pytest.raises(UsageError, match="link to a file outside of the folder"):
        cfgraph.save(whole, folder)
    assert elsewhere.read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FILES, "manifest.json"])


def test_saving_again_leaves_nothing_of_the_old_graph(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    cfgraph.save(graph(f'x = NoOp() @"{B}"'), folder)
    assert sorted(file.name for file in folder.iterdir()) == [FILES[1], "manifest.json"]
    assert list(cfgraph.load(folder).nodes) == ["x"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = NoOp()", "the node has no device"),
        (f'x = NoOp() @"{A}"\ny = NoOp(^x) @"{B}"', "the input 'x' is on another device"),
    ],
)
def test_a_graph_that_is_not_partitioned_is_not_saved_in_parts(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        saved(tmp_path, text)
    hint = caught.value.hint or ""
    assert f"write one file, such as {tmp_path / 'parts'}.pb" in hint
    assert "`functionalize` write a SavedModel" in hint
    assert not (tmp_path / "parts").exists()


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"[]",
        b'{"parts": 3}',
        b'{"format": "cfgraph partitions", "version": 2, "parts": []}',
        b'{"format": "cfgraph partitions", "version": 1, "parts": [{"file": "../x.pb"}]}',
        b'{"format": "cfgraph partitions", "version": 1, "parts": [{"file": "/etc/hosts"}]}',
        b'{"format": "cfgraph partitions", "version": 1, "parts": [{"file": 1}]}',
        b'{"format": "cfgraph partitions", "version": 1, "parts": [{"file": "none.pb"}]}',
        b"[" * 100_000,
    ],
)
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, manifest: bytes) -> None:
    folder = saved(tmp_path)
    (folder / "manifest.json").write_bytes(manifest)
    with pytest.raises(InvalidInput) as caught:
        cfgraph.load(folder)
    assert str(folder) in str(caught.value.path)


def test_a_missing_part_or_manifest_is_named(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    part = folder / FILES[0]
    data = part.read_bytes()
    part.unlink()
    with pytest.raises(InvalidInput, match="no such file") as caught:
        cfgraph.load(folder)
    assert str(caught.value.hint).startswith("manifest.json lists it; copy all files that one")
    part.write_bytes(data)
    (folder / "manifest.json").unlink()
    with pytest.raises(InvalidInput, match=r"no saved_model.pb, and no manifest.json") as caught:
        cfgraph.load(folder)
    assert str(part) in str(caught.value.hint)


def test_parts_of_two_versions_are_described_in_words(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    other = cfgraph.load(folder / FILES[1])
    other.versions = other.versions._replace(producer=9)
    cfgraph.save(other, folder / FILES[1])
    with pytest.raises(InvalidInput, match="different versions: producer 9, consumer 0") as caught:
        cfgraph.load(folder)
    assert "copy all files that one `cfgraph partition` wrote" in str(caught.value.hint)


def test_the_page_has_the_members_of_a_manifest(tmp_path: Path) -> None:
    manifest = json.loads((saved(tmp_path) / "manifest.json").read_text())
    written = {*manifest, *(f"parts[].{key}" for part in manifest["parts"] for key in part)}
    page = Path(__file__).parents[2] / "docs/devices.md"
    table = page.read_text().partition("## A folder of parts")[2].partition("\n## ")[0]
    described = [line.split("|")[1].strip() for line in table.splitlines() if line[:3] == "| `"]
    assert {*described} == {f"`{name}`" for name in written}


def test_parts_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    (folder / FILES[1]).write_bytes((folder / FILES[0]).read_bytes())
    with pytest.raises(InvalidInput, match="two nodes have the name 'x'"):
        cfgraph.load(folder)
    other = graph(TEXT.replace("add = AddV2", "other = AddV2").replace("add:z", "other:z"))
    partition = cfgraph.loads(cfgraph.dumps(other))
    partition.remove(partition["a"], partition["x"])
    cfgraph.save(partition, folder / FILES[1])
    with pytest.raises(InvalidInput, match="two different functions have the name 'double'"):
        cfgraph.load(folder)
