"""SavedModels that cfgraph writes, loaded and run by TensorFlow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="needs the extra `interop`")

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TF1_MODEL = """
import sys, tensorflow as tf
v1 = tf.compat.v1
with tf.Graph().as_default(), v1.Session() as session:
    x = v1.placeholder(tf.float32, [None, 2], "in")
    w = v1.get_variable("w", initializer=[[2.0], [3.0]], use_resource=sys.argv[2] == "resource")
    y = tf.matmul(x * x, w, name="out")
    session.run(v1.global_variables_initializer())
    v1.saved_model.simple_save(session, sys.argv[1], {"x": x}, {"y": y})
"""
LOAD = """
import json, sys, tensorflow as tf
v1 = tf.compat.v1
folder, value = sys.argv[1], json.loads(sys.argv[2])
function = tf.saved_model.load(folder).signatures["serving_default"]
values = [{name: item.numpy().tolist() for name, item in function(x=tf.constant(value)).items()
    if item.dtype == tf.float32}]
with tf.Graph().as_default(), v1.Session() as session:
    signature = v1.saved_model.load(session, ["serve"], folder).signature_def["serving_default"]
    feeds = {signature.inputs["x"].name: value}
    names = {name: item.name for name, item in signature.outputs.items() if item.dtype == 1}
    values.append({name: item.tolist() for name, item in session.run(names, feeds).items()})
print(json.dumps(values))
"""


def python(script: str, *args: object) -> str:
    words = [sys.executable, "-c", script, *map(str, args)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_tensorflow_loads_a_saved_model_with_gradients(
    command: Any, fixtures: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "new"
    assert command("grad", fixtures / "saved_model", "--ys", "y", "-o", f"{folder}/").code == 0
    tf2, tf1 = json.loads(python(LOAD, folder, "[[1.0, 2.0]]"))
    assert tf2 == tf1
    assert tf1["y"] == [[1.8203125, 5.5546875]]
    done = command("run", folder, "--feed", "x=[[1, 2]]", "--full", "--json")
    values = {item["output"]: item["data"] for item in done.json["result"]["values"]}
    for name, value in tf1.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-6)
    assert sorted(tf1) == ["gradients/same", "gradients/same_1", "gradients/x", "y"]


@pytest.mark.parametrize("kind", ["reference", "resource"])
def test_a_saved_model_of_tensorflow_1_keeps_its_variables(
    kind: str, command: Any, tmp_path: Path
) -> None:
    python(TF1_MODEL, tmp_path / "old", kind)
    folder = tmp_path / "new"
    assert command("grad", tmp_path / "old", "--ys", "y", "-o", f"{folder}/").code == 0
    for values in json.loads(python(LOAD, folder, "[[1.0, 2.0]]")):
        assert values == {
            "gradients/w": [[1.0], [4.0]],
            "gradients/x": [[4.0, 12.0]],
            "y": [[14.0]],
        }
