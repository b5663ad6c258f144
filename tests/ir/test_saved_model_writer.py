"""A graph that was derived from a SavedModel is written as one."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.dtypes import float32
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.serde.saved_model import (
    SavedModelContents,
    SavedSignature,
    SignatureTensor,
    parse_saved_model,
    read_contents,
)
from cfgraph.ir.serde.saved_model_writer import (
    SavedModelOrigin,
    extended_signature,
    stage_saved_model,
)
from cfgraph.ir.shapes import Shape


def origin_of(folder: Path) -> SavedModelOrigin:
    return SavedModelOrigin((folder / "saved_model.pb").read_bytes(), str(folder))


def contents_of(folder: Path) -> SavedModelContents:
    contents = read_contents((folder / "saved_model.pb").read_bytes())
    assert contents is not None
    return contents


def write(graph: cfgraph.Graph, source: Path, target: Path, **options: object) -> tuple[str, ...]:
    with StagedFiles() as files:
        return stage_saved_model(graph, target, origin_of(source), files, **options)  # type: ignore[arg-type]


@pytest.fixture
def saved(fixtures: Path) -> Path:
    return fixtures / "saved_model"


@pytest.fixture
def tables(fixtures: Path) -> Path:
    return fixtures / "saved_model_tables"


def test_variables_assets_and_signatures_are_kept(tables: Path, tmp_path: Path) -> None:
    graph = cfgraph.load(tables)
    cfgraph.lower(graph)
    assert write(graph, tables, tmp_path / "new") == ()
    assert contents_of(tmp_path / "new") == contents_of(tables)
    restored, original = cfgraph.restore(tmp_path / "new"), cfgraph.restore(tables)
    assert sorted(restored) == sorted(original)
    for path in tables.rglob("*"):
        if path.parent.name in ("assets", "variables"):
            assert (tmp_path / "new" / path.relative_to(tables)).read_bytes() == path.read_bytes()


def test_assets_of_tensorflow_1_are_a_collection(tables: Path, tmp_path: Path) -> None:
    shutil.copytree(tables, tmp_path / "old")
    saved = parse_saved_model(origin_of(tables).data)
    assert saved is not None
    meta = saved.meta_graphs[0]
    for entry in (*meta.asset_file_def, *meta.asset_file_def):
        found = meta.collection_def["saved_model_assets"].any_list.value.add()
        found.type_url = "type.googleapis.com/tensorflow.AssetFileDef"
        found.value = entry.SerializeToString()
    del meta.asset_file_def[:]
    (tmp_path / "old" / "saved_model.pb").write_bytes(saved.SerializeToString())
    assert contents_of(tmp_path / "old") == contents_of(tables)
    write(cfgraph.load(tables), tmp_path / "old", tmp_path / "new")
    assert contents_of(tmp_path / "new") == contents_of(tables)
    restored, original = cfgraph.restore(tmp_path / "new"), cfgraph.restore(tables)
    assert sorted(restored) == sorted(original)


def test_a_saved_model_of_a_derived_graph_has_no_objects(saved: Path, tmp_path: Path) -> None:
    # TensorFlow 2 would look up the functions of the original in them
    write(cfgraph.load(saved), saved, tmp_path / "new")
    written = [parse_saved_model(origin_of(at).data) for at in (saved, tmp_path / "new")]
    assert [item.meta_graphs[0].HasField("object_graph_def") for item in written] == [True, False]


def test_a_signature_is_extended_or_added(saved: Path, tmp_path: Path) -> None:
    graph = cfgraph.load(saved)
    old = contents_of(saved).signatures["serving_default"]
    twice = SignatureTensor("twice", "serving_default_x:0", float32, Shape([None, 2]))
    new = SavedSignature("echo", old.inputs, (twice,))
    signatures = (extended_signature(old, [twice]), new)
    write(graph, saved, tmp_path, signatures=signatures)
    found = contents_of(tmp_path).signatures
    assert found == {
        "echo": new,
        "serving_default": SavedSignature(
            "serving_default", old.inputs, (old.outputs[0], twice, old.outputs[1])
        ),
    }


def test_a_signature_without_its_tensors_is_omitted(saved: Path, tmp_path: Path) -> None:
    graph = cfgraph.load(saved)
    graph.remove(graph["StatefulPartitionedCall"])
    assert write(graph, saved, tmp_path) == ("serving_default",)
    assert contents_of(tmp_path).signatures == {}


def test_a_graph_without_its_saver_is_rejected(saved: Path, tmp_path: Path) -> None:
    graph = cfgraph.load(saved)
    graph.remove(graph["StatefulPartitionedCall_2"])
    with pytest.raises(InvalidInput, match="lacks 'StatefulPartitionedCall_2'"):
        write(graph, saved, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_variables_require_the_folder(saved: Path, tmp_path: Path) -> None:
    origin = SavedModelOrigin((saved / "saved_model.pb").read_bytes(), None)
    with pytest.raises(UsageError, match="without its folder"), StagedFiles() as files:
        stage_saved_model(cfgraph.load(saved), tmp_path / "new", origin, files)
    assert not (tmp_path / "new").exists()


def test_a_link_out_of_the_folder_is_not_copied(saved: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(saved, tmp_path / "source"))
    shard = source / "variables" / "variables.data-00000-of-00001"
    shutil.move(shard, tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="outside of the folder"):
        write(cfgraph.load(source), source, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_saved_model_can_replace_itself(saved: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved, tmp_path / "model"))
    (folder / "fingerprint.pb").write_bytes(b"of the original")
    graph = cfgraph.load(folder)
    cfgraph.lower(graph)
    write(graph, folder, folder)
    assert not (folder / "fingerprint.pb").exists()
    session = cfgraph.Session(cfgraph.load(folder), state=cfgraph.restore(folder))
    (y,) = session.run(["StatefulPartitionedCall:1"], {"serving_default_x": [[1, 2]]})
    np.testing.assert_array_equal(y, np.float32([[1.8203125, 5.5546875]]))


@pytest.mark.parametrize("is_changed", [False, True])
def test_contexts_that_name_other_nodes_are_omitted(
    saved: Path, tmp_path: Path, is_changed: bool
) -> None:
    model = parse_saved_model(origin_of(saved).data)
    assert model is not None
    meta = model.meta_graphs[0]
    meta.collection_def["while_context"].bytes_list.value.append(b"")
    if is_changed:
        meta.graph_def.node.add(name="while/Merge", op="NoOp")
    origin = SavedModelOrigin(model.SerializeToString(), str(saved))
    with StagedFiles() as files:
        stage_saved_model(cfgraph.load(saved), tmp_path, origin, files)
    written = parse_saved_model(origin_of(tmp_path).data)
    assert written is not None
    assert ("while_context" in written.meta_graphs[0].collection_def) == (not is_changed)
